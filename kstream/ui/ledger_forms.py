"""The ledger as the page shows it: a row for each stream of an entry, with one sentence. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from kstream.batch import SkippedRecord
from kstream.checkpoint.history import LedgerEntry
from kstream.offsets.offset_range import PlannedRange
from kstream.ui.forms import LedgerForm

RangesOf: TypeAlias = Callable[[Mapping[str, Any]], Sequence[PlannedRange] | None]
"""Returns the ranges in the plan data of an input; None if its connector offers none."""

_SHOWN = 4
"""The most losses or ranges in a sentence. It counts the others."""
_BECAME = {
    "skipped": "left out as asked for",
    "to-skip": "to be left out; the batch has not ended. Asked for",
    "not-skipped": "not left out: the batch has ended with it. Asked for too late",
}


def ledger_forms(entry: LedgerEntry, ranges_of: RangesOf) -> Iterator[LedgerForm]:
    """Yield the rows of an entry: one for each stream, and one without a stream if it has none.

    Args:
        entry: the entry.
        ranges_of: the tools of the connectors, for the plans of batches that were given up.
    """
    for stream, text in _texts(entry, ranges_of):
        yield {
            "batchTimeMs": entry.time.milliseconds,
            "kind": entry.kind,
            "stream": stream,
            "text": text,
            "acknowledged": entry.is_acknowledged,
        }


def _texts(entry: LedgerEntry, ranges_of: RangesOf) -> Iterator[tuple[int | None, str]]:
    """Yield each stream of an entry with its sentence."""
    why = f"given up: the batch has failed {entry.failures} times" if entry.kind == "given-up" else ""
    if not entry.streams:
        yield None, why or entry.kind
    for stream, found in sorted(entry.streams.items()):
        if entry.kind == "given-up":
            ranges = ranges_of(found)
            full = [r for r in ranges or () if r.until > r.begin]
            yield stream, why + (f"; it was to read {_some([range_text(*r) for r in full])}" if full else "")
        elif entry.is_asked_for:
            yield stream, "; ".join(_skip_text(record, entry) for record in found)
        else:
            yield stream, _some([loss_text(loss) for loss in found])


def loss_text(loss: Mapping[str, Any]) -> str:
    """Return a loss of the ledger as a clause: `orders/1 [5, 8): retention, removed too early`. Without offsets it is JSON."""
    if not {"topic", "partition", "from", "until"} <= loss.keys():
        return json.dumps(dict(loss))
    why = ", ".join(str(loss[key]) for key in ("cause", "detail") if loss.get(key))
    return range_text(loss["topic"], loss["partition"], loss["from"], loss["until"]) + (f": {why}" if why else "")


def range_text(topic: str, partition: int, begin: int, until: int | None) -> str:
    """Return a range of offsets: `orders/1 [5, 8)`; a range without an end has all later offsets."""
    return f"{topic}/{partition} [{begin}, {'…' if until is None else until})"


def _skip_text(record: SkippedRecord, entry: LedgerEntry) -> str:
    """Return the sentence about a record that `kstream skip` has named."""
    outputs = "; ".join(record.outputs) or ", ".join(map(str, record.read_by))
    return f"{record} {_BECAME[entry.kind]} {entry.note}" + (f" (outputs that had read it: {outputs})" if outputs else "")


def _some(texts: Sequence[str]) -> str:
    """Return the first texts, and how many more there are."""
    more = len(texts) - _SHOWN
    return "; ".join(texts[:_SHOWN]) + (f"; … {more} more" if more > 0 else "")
