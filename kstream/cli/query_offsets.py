"""New offsets for a query of Structured Streaming that does not run: `kstream offsets reset` and `rewind` of the checkpoint of a query.

A change is a batch of its own, which reads nothing and is committed. Spark, and any source, goes on where the last committed batch ends.
Files are only created, never written over. So a query that runs nevertheless, and plans the same batch, is refused by one of the files:
either the change is, or the query ends ("Multiple streaming jobs detected").
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.markup import escape
from rich.table import Table

from kstream.checkpoint.query_ledger import set_losses
from kstream.checkpoint.sign_of_life import duration_text
from kstream.cli.inputs import PlanData
from kstream.cli.query import connection_of, source_offsets
from kstream.cli.structured_streaming import (
    COMMITS,
    BatchEntry,
    batches_since,
    check_form,
    has_state,
    initial_offset,
    newest_batches,
    read_entry,
    refused,
)
from kstream.cli.terminal import echo, fail, table_console, utc_text
from kstream.connectors import ConnectorTools, OffsetChange, ResetResult
from kstream.errors import AlreadyExistsError, StorageError
from kstream.offsets.offset_log import NO_OFFSET, OFFSETS
from kstream.offsets.offset_range import LostRange, Partition
from kstream.offsets.topic_offsets import by_topic
from kstream.storage import FileStore, prepare_to_write

MARK = "kstream.offsets"
"""A key of the settings in the metadata of a batch that is a change of offsets. Spark reads no settings that it does not know."""
QUIET_MS = 60_000
"""A query seems to run if its last batch began or was committed less than this many milliseconds ago."""
_FILE_SINKS = (
    "If the query writes files by a sink of Spark (parquet, json, csv, text, orc), create a file _spark_metadata/{batch} with the content "
    "v1 in its output before it starts: the log of such a sink must have each batch."
)

Move: TypeAlias = Callable[[str, ConnectorTools, PlanData, Sequence[str]], ResetResult]
"""Moves a source: its name, the tools of its connector, plan data that ends at its offsets, and the topics; without any all topics move."""


@dataclass(frozen=True, slots=True)
class CommittedQuery:
    """A query whose last batch is committed.

    Attributes:
        batch: that batch.
        entry: what the offset log has of it.
        watermark_ms: the watermark that it leaves to the next batch.
        moment_ms: when it began or was committed, whichever is later; 0 if it is a change that was finished now.
    """

    batch: int
    entry: BatchEntry
    watermark_ms: int
    moment_ms: int


def read_committed(store: FileStore, now_ms: int, dry_run: bool = False, take_over: bool = False) -> CommittedQuery:
    """Read the last batch of a query whose offsets can be set. A change that was cut short is finished first. Blocks on the store.

    End the program if a change is to be finished, and the query seems to run.

    Args:
        store: the checkpoint of the query.
        now_ms: the time in ms.
        dry_run: finish nothing.
        take_over: finish a change even if the query seems to run.

    Raises:
        ConfigurationError: the last batch is not committed, the query has state, or the checkpoint is damaged or of an unknown form.
        UnsupportedStoreError: a change is to be finished, and the store cannot create a file only if it is absent.
        StorageError: the store failed.
    """
    batches = newest_batches(store)
    if batches.begun is None:
        raise refused(store, f"no batch of {store.url} has begun: set where it begins by its option startingOffsets")
    if has_state(store):
        said = f"the query of {store.url} has state, which belongs to the records that it has read and has a version for each batch"
        raise refused(store, f"{said}: its offsets cannot be set. Begin a new query, with another checkpoint")
    entry = read_entry(store, batches.begun)
    is_half_made = batches.open is not None and batches.committed == batches.open - 1 and is_change(entry)
    if batches.open is not None and not is_half_made:
        said = f"batch {batches.open} of {store.url} has begun and is not committed: it would run again with its offsets"
        raise refused(store, f"{said}. Let the query run until it is (trigger availableNow), stop it, and set the offsets then")
    if batches.open is None and batches.begun != batches.committed:
        said = f"batch {batches.committed} is committed, and the last that has begun is {batches.begun}"
        raise refused(store, f"{store.url} is damaged: {said}")
    check_form(store, batches.begun, entry.metadata, "its offsets cannot be set")
    moment_ms = _moment_ms(store, batches.begun, entry, is_half_made)
    if is_half_made:
        _finish(store, batches.begun, moment_ms, now_ms, dry_run, take_over)
        moment_ms = 0  # the query was found at rest, and the commit of now is that of this command
    return CommittedQuery(batches.begun, entry, _watermark(store.read(f"{COMMITS}/{batches.begun}")), moment_ms)


def _moment_ms(store: FileStore, batch: int, entry: BatchEntry, is_half_made: bool) -> int:
    """Return when a batch began or was committed, whichever is later; without a commit, when it was written. Blocks on the store."""
    files = (f"{OFFSETS}/{batch}", f"{COMMITS}/{batch - 1}") if is_half_made else (f"{COMMITS}/{batch}",)
    return max(entry.metadata["batchTimestampMs"], *(store.modified_ms(name) or 0 for name in files))


def _check_rests(store: FileStore, batch: int, moment_ms: int, now_ms: int, take_over: bool) -> None:
    """End the program if a query seems to run. Pure otherwise."""
    if not take_over and now_ms - moment_ms < QUIET_MS:
        ago = duration_text(max(0, now_ms - moment_ms))
        fail(f"batch {batch} of {store.url} ran {ago} ago: stop the query. If it is stopped, wait a minute, or give --take-over")


def _watermark(commit: bytes) -> int:
    """Return the watermark that a batch leaves to the next one, in ms; 0 without one. Pure."""
    try:
        return int(json.loads(commit.decode().split("\n")[1])["nextBatchWatermarkMs"])
    except (LookupError, TypeError, ValueError):
        return 0


def _finish(store: FileStore, number: int, moment_ms: int, now_ms: int, dry_run: bool, take_over: bool) -> None:
    """Commit a change that was cut short. End the program if Spark seems to run it as a batch. ConfigurationError in a dry run."""
    said = f"the change of the offsets in batch {number} had been cut short"
    if dry_run:
        raise refused(store, f"{said}: this command finishes it, without --dry-run")
    _check_rests(store, number, moment_ms, now_ms, take_over)
    prepare_to_write(store, single_writer=False)
    _complete(store, number)
    echo(f"{said}: it is finished now")


def _complete(store: FileStore, number: int) -> None:
    """Write what a change of the offset log skips into the ledger, and commit the change. Blocks on the store.

    The offset log has the change before the ledger has: a command that dies leaves no entry without its change. The commit comes last, so
    that nothing is skipped without an entry.
    """
    with _half_made(store, number):
        change = read_entry(store, number)
        set_losses(store, f"reset-{number}", change.metadata.get("batchTimestampMs", 0), skipped(read_entry(store, number - 1), change))
        _create(store, f"{COMMITS}/{number}", store.read(f"{COMMITS}/{number - 1}"))


@contextmanager
def _half_made(store: FileStore, number: int) -> Generator[None]:
    """Say what to do if the store fails once the offset log has a change, or may have it."""
    try:
        yield
    except StorageError as e:
        place = store.path(f"{OFFSETS}/{number}")
        then = "Run this command again before the query starts, in a minute or with --take-over"
        raise StorageError(f"{e}. {place} is not committed: the change is half made. {then}", path=place) from e


def skipped(before: BatchEntry, change: BatchEntry) -> list[LostRange]:
    """Return what lies between the offsets of two batches, and is in no batch. Pure."""
    found: list[LostRange] = []
    for name, text in change.sources.items():
        old, new = (source_offsets(each)[1] or {} for each in (before.sources.get(name), text))
        ahead = [(p, old[p], at) for p, at in sorted(new.items()) if p in old and old[p] < at]
        found += [LostRange(*p, begin, until, "reset", "skipped by kstream offsets") for p, begin, until in ahead]
    return found


def is_change(entry: BatchEntry) -> bool:
    """Return whether a batch is a change of offsets, and not one of Spark. Pure."""
    settings = entry.metadata.get("conf")
    return isinstance(settings, dict) and MARK in settings


# -- the change


def reset_query(
    store: FileStore,
    wanted: Any,
    topics: tuple[str, ...],
    source: str | None,
    connection_options: tuple[str | None, tuple[str, ...], str | None],
    now_ms: int,
    dry_run: bool,
    take_over: bool,
) -> None:
    """Set the sources of a query to other offsets, which the brokers look up. Prints the changes. Blocks on brokers and store.

    End the program if the options choose no source, or if the query seems to run.

    Args:
        store: the checkpoint.
        wanted: one position for all partitions, or `{"topic": {"0": position}}`.
        topics: the topics to move; empty for all.
        source: the name or number of the source; None for all that read the topics.
        connection_options: those of a connection: brokers, parameters, their file.
        now_ms: the time in ms.
        dry_run: only show the change.
        take_over: make the change even if the query seems to run.

    Raises:
        KStreamError: as `read_committed`, and an error of the connector or the store.
    """

    def move(_name: str, known: ConnectorTools, data: PlanData, chosen: Sequence[str]) -> ResetResult:
        to = {topic: wanted[topic] for topic in chosen} if isinstance(wanted, dict) else wanted
        return known.reset(connection_of(known, connection_options), data, to, chosen)

    query = read_committed(store, now_ms, dry_run, take_over)
    _set(store, query, _moved(query, topics, source, move), now_ms, dry_run, take_over)


def rewind_query(
    store: FileStore, moment_ms: int, topics: tuple[str, ...], source: str | None, now_ms: int, dry_run: bool, take_over: bool
) -> None:
    """Set the sources of a query back to where the first batch since a moment begins. Prints the changes. Blocks on the store.

    End the program if the options choose no source, if no such batch is stored, or if the query seems to run.

    Args:
        store: the checkpoint.
        moment_ms: the moment.
        topics: the topics to move; empty for all.
        source: the name or number of the source; None for all that read the topics.
        now_ms: the time in ms.
        dry_run: only show the change.
        take_over: make the change even if the query seems to run.

    Raises:
        KStreamError: as `read_committed`, and an error of the connector or the store.
    """
    query = read_committed(store, now_ms, dry_run, take_over)
    past = batches_since(store, query.batch, moment_ms)

    def move(name: str, known: ConnectorTools, data: PlanData, chosen: Sequence[str]) -> ResetResult:
        found = next(((batch, begins) for batch in past if (begins := _beginning(store, name, batch))), None)
        if found is None:
            fail(f"{store.url} holds no batch at or after {moment_ms} ms of which it says where source {name} begins")
        (number, entry, _), begins = found
        echo(f"source {name} goes back to where batch {number} begins ({utc_text(entry.metadata['batchTimestampMs'])} UTC)")
        return known.rewind(data, known.plan_at(begins), chosen)

    _set(store, query, _moved(query, topics, source, move), now_ms, dry_run, take_over)


def _beginning(store: FileStore, name: str, batch: tuple[int, BatchEntry, BatchEntry | None]) -> Mapping[Partition, int] | None:
    """Return where a batch begins in a source; None if that is not stored. A change reads nothing: it begins where it ends. Blocks."""
    number, entry, before = batch
    if before is None and number > 0 and not is_change(entry):
        return None
    there = entry if is_change(entry) else before
    text = NO_OFFSET if there is None else there.sources.get(name, NO_OFFSET)
    return source_offsets(initial_offset(store, name) if text == NO_OFFSET else text)[1]


def _set(
    store: FileStore,
    query: CommittedQuery,
    moved: Mapping[str, tuple[ConnectorTools, ResetResult]],
    now_ms: int,
    dry_run: bool,
    take_over: bool,
) -> None:
    """Print a change, and make it unless this is a dry run. End the program if the query seems to run. Blocks on the store.

    Args:
        store: the checkpoint.
        query: the query, as it is before.
        moved: the new offsets by source.
        now_ms: the time in ms.
        dry_run: only show the change.
        take_over: make the change even if the query seems to run.

    Raises:
        ConfigurationError: the offset log has another batch.
        UnsupportedStoreError: the store cannot create a file only if it is absent.
        StorageError: the store failed.
    """
    changes = [(name, change) for name, (_, found) in moved.items() for change in found.changes]
    if not changes:
        echo("every partition is there already: nothing to change")
        return
    _print_changes(changes)
    number = query.batch + 1
    echo(_FILE_SINKS.format(batch=number))
    if dry_run:
        echo("dry run: nothing was changed")
        return
    _check_rests(store, query.batch, query.moment_ms, now_ms, take_over)
    prepare_to_write(store, single_writer=False)
    texts = {name: _text(*moved[name], text) if name in moved else text for name, text in query.entry.sources.items()}
    with _half_made(store, number):
        _create(store, f"{OFFSETS}/{number}", change_bytes(query, texts, now_ms))
    _complete(store, number)
    echo(f"set, as batch {number}: the query continues from there")


def _moved(query: CommittedQuery, topics: tuple[str, ...], source: str | None, move: Move) -> dict[str, tuple[ConnectorTools, ResetResult]]:
    """Return the new offsets by source. Blocks as `move`. End the program if the options choose no source."""
    found: dict[str, tuple[ConnectorTools, ResetResult]] = {}
    read: set[str] = set()
    for name, text in query.entry.sources.items():
        known, offsets = source_offsets(text)
        if known is None or not offsets or source not in (None, name):
            continue
        here = {topic for topic, _ in offsets}
        read |= here
        chosen = [topic for topic in topics if topic in here]
        if chosen or not topics:
            found[name] = known, move(name, known, known.plan_at(offsets), chosen)
    if stray := sorted(set(topics) - read):
        fail(f"no source of this query reads {', '.join(map(repr, stray))}; they read {', '.join(sorted(read)) or 'no known topic'}")
    if not found:
        fail(f"the options choose no source of this query; it has {', '.join(query.entry.sources)}: see `kstream offsets show`")
    return found


def _text(known: ConnectorTools, moved: ResetResult, before: str) -> str:
    """Return the new offset of a source, with spaces if the old one has some: a source compares texts with those of its own. Pure."""
    offsets = {(r.topic, r.partition): r.until for r in known.ranges(moved.data) or ()}
    return json.dumps(by_topic(offsets), separators=(", ", ": ") if ": " in before else (",", ":"))


def change_bytes(query: CommittedQuery, texts: Mapping[str, str], now_ms: int) -> bytes:
    """Return the file of the offset log for a change that follows a batch. Pure.

    The watermark is that of the next batch, and the settings are those of the last one.

    Args:
        query: the batch.
        texts: the offset of each source, by its name or number.
        now_ms: the time in ms.
    """
    metadata = dict(query.entry.metadata)
    metadata["batchWatermarkMs"] = query.watermark_ms
    metadata["batchTimestampMs"] = now_ms
    metadata["conf"] = {**metadata.get("conf", {}), MARK: "reset"}
    named = query.entry.version == "v2"
    lines = [f"{name}:{text}" if named else text for name, text in texts.items()]
    return "\n".join([query.entry.version, json.dumps(metadata, separators=(",", ":")), *lines]).encode()


def _create(store: FileStore, name: str, content: bytes) -> None:
    """Create a file of the checkpoint. ConfigurationError if it is there: a query has written it meanwhile."""
    try:
        store.create(name, content)
    except AlreadyExistsError as e:
        raise refused(store, f"{store.path(name)} has come meanwhile: a query runs. Stop it first") from e


def _print_changes(changes: Sequence[tuple[str, OffsetChange]]) -> None:
    """Print the changes as a table."""
    table = Table("source", "partition", "next now", "next then", "change", "")
    for name, change in changes:
        old, new = ("" if at is None else str(at) for at in (change.old, change.new))
        distance = "" if change.old is None or change.new is None else f"{change.new - change.old:+d}"
        table.add_row(escape(name), escape(f"{change.topic}/{change.partition}"), old, new, distance, escape(change.note))
    table_console().print(table)
