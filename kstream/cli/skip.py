"""`kstream skip`: a pending batch runs without a record. Needs neither Java nor pyspark, and no driver.

The command only adds a record to the checkpoint, by create-if-absent. So it may run beside a driver, or while none lives, and may be killed
at any moment: the request is there, or it is not.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import click

from kstream.batch import BatchPlan, SkippedRecord
from kstream.batch_time import Time
from kstream.checkpoint import LogContents, read_log
from kstream.checkpoint.outcomes import Failure, failure_names, read_failure
from kstream.checkpoint.reader import has_ended, read_left_out
from kstream.checkpoint.skip_request import SkipRequest, ask_to_skip
from kstream.cli.inputs import newest_plans, open_existing, parse_place, ranges_of, tools_of
from kstream.cli.terminal import clear_errors, count, echo, fail, this_process
from kstream.errors import ConfigurationError, CorruptRecordError
from kstream.storage import FileStore


@click.command("skip")
@click.argument("path")
@click.argument("place", metavar="TOPIC-P@N")
@click.option("--reason", default="", help="Why, in a few words, for the ledger.")
@click.option("--stream", type=int, metavar="N", help="The number of the stream, if several streams of the batch read this offset.")
def skip_command(path: str, place: str, reason: str, stream: int | None) -> None:
    """Let a pending batch run without the record at an offset: `kstream skip PATH orders-0@12 --reason "no JSON"`.

    The batch must be planned and not have ended: it has failed, it runs now, or it waits. Its ranges do not change, and every other
    record is read. A living driver leaves the record out when it tries the failed batch again; a restart does so from the first try on. A
    second call changes nothing. `kstream ledger` shows what became of it.

    Outputs that have written the record already are named, as far as the checkpoint knows them: they keep it.

    Exit code 1 if the offset lies in no such batch, or if the batch has ended with the record before.
    """
    with clear_errors():
        topic, partition, offset = parse_place(place)
        store = open_existing(path)
        contents = read_log(store)
        holders = chosen(contents, SkippedRecord(-1, topic, partition, offset), stream, store.url)
        by = this_process()
        late = [holder for holder in holders if not _ask(store, holder, contents.plans[holder.time], by, reason)]
    if late:
        fail(f"batch {late[0].time} ended with {topic}-{partition}@{offset} before this request: nothing is left out")


@dataclass(frozen=True, slots=True)
class Holder:
    """A pending batch with the record that it shall leave out. `epoch`: that of its plan."""

    time: Time
    epoch: int
    record: SkippedRecord


def chosen(contents: LogContents, wanted: SkippedRecord, stream: int | None, url: str) -> list[Holder]:
    """Return the pending batches whose ranges hold a record: one, or more after offsets were set back. Pure.

    Args:
        contents: of the log.
        wanted: the place of the record; its stream does not count.
        stream: the number of the stream; None if only one stream of the batch reads the record.
        url: the checkpoint, for messages.

    Raises:
        ConfigurationError: no pending batch holds it, or several streams do.
    """
    place, pending = f"{wanted.topic}-{wanted.partition}@{wanted.offset}", set(contents.pending)
    found = [
        (moment, number)
        for moment, plan in contents.plans.items()
        for number, data in sorted(plan.inputs.items())
        if (stream is None or number == stream) and any(_holds(r, wanted) for r in ranges_of(data) or ())
    ]
    holders = [
        Holder(moment, contents.plans[moment].epoch, SkippedRecord(number, wanted.topic, wanted.partition, wanted.offset))
        for moment, number in found
        if moment in pending
    ]
    if not holders:
        raise ConfigurationError(
            f"{place} {_why_not(contents, [moment for moment, _ in found], wanted, stream, url)}", key="offset", value=place
        )
    numbers = sorted({holder.record.stream for holder in holders})
    if len(numbers) > 1:
        said = ", ".join(map(str, numbers))
        raise ConfigurationError(f"streams {said} of {url} read {place}: name one of them by --stream", key="stream", value=said)
    for holder in holders:
        known = tools_of(contents.plans[holder.time].inputs[holder.record.stream])
        if known is None or not known.leaves_out:
            name = "its connector" if known is None else f"the connector of {known.name}"
            raise ConfigurationError(f"stream {holder.record.stream}: {name} cannot leave out single records", key="stream", value=numbers)
    return holders


def _holds(r: tuple[str, int, int, int], wanted: SkippedRecord) -> bool:
    topic, partition, begin, until = r
    return (topic, partition) == (wanted.topic, wanted.partition) and begin <= wanted.offset < until


def _why_not(contents: LogContents, ended: Iterable[Time], wanted: SkippedRecord, stream: int | None, url: str) -> str:
    """Return why no pending batch holds a record, as a clause. `ended`: the batches that hold it. `stream`: as of `chosen`."""
    newest = max(ended, default=None)
    if newest is not None:
        if newest in contents.given_up:
            return f"lies in batch {newest}, which was given up: no restart runs it (`kstream ledger {url}` shows how to run it again)"
        return f"lies in batch {newest}, which has ended: nothing is left to skip"
    ends = [
        r.until
        for number, data in newest_plans(contents).items()
        for r in ranges_of(data) or ()
        if stream in (None, number) and (r.topic, r.partition) == (wanted.topic, wanted.partition)
    ]
    if not ends:
        nobody = f"no stream of {url} reads" if stream is None else f"stream {stream} of {url} does not read"
        return f"lies in no batch: {nobody} this partition"
    if wanted.offset >= max(ends):
        return f"lies in no batch yet: the next offset that a batch reads is {max(ends)}"
    return f"lies in no batch whose plan is kept: pending are {count(len(contents.pending), 'batch')} of later offsets"


def _ask(store: FileStore, holder: Holder, plan: BatchPlan, by: str, reason: str) -> bool:
    """Store the request for a batch, and say what becomes of it. Return False if the batch has ended with the record. Blocks."""
    request = SkipRequest(holder.time, holder.epoch, holder.record, round(time.time() * 1000), by, reason)
    stored = ask_to_skip(store, request)
    if has_ended(store, holder.time, holder.epoch):  # looked up after the request is there, so that nobody is told too much
        left_out = {record.place for record in read_left_out(store, holder.time, holder.epoch)}
        if holder.record.place not in left_out:
            return False
        echo(f"batch {holder.time} has ended without {holder.record}")
        return True
    again = "" if stored == request else f" (asked for before, by {stored.asked_by})"
    echo(f"batch {holder.time} leaves out {holder.record} from its next try on{again}")
    for sentence in already_written(failures_of(store, holder), plan.outputs):
        echo(f"warning: {sentence}", err=True)
    return True


def failures_of(store: FileStore, holder: Holder) -> list[Failure]:
    """Return the failures of a batch, oldest first, without those that cannot be read. Blocks: one listing, and one read for each."""
    found: list[Failure] = []
    for name in failure_names(store).get((holder.time, holder.epoch), ()):
        with suppress(CorruptRecordError):
            failure = read_failure(store, name)
            found += [] if failure is None else [failure]
    return found


def already_written(failures: Sequence[Failure], outputs: Sequence[str]) -> list[str]:
    """Return a sentence about each output that has a record of a batch already, or may have it. Pure.

    Args:
        failures: of the batch, oldest first.
        outputs: the outputs that write exactly once, by the plan of the batch.
    """
    newest = failures[-1].succeeded if failures else ()
    kept = dict.fromkeys(one for failure in failures for one in failure.succeeded if one.outputs)
    known = {name for one in kept for name in one.outputs}
    return [
        *(f"{one}, already has this record and keeps it" for one in kept),
        *(f"{one}, already has this record; only a restart runs it again" for one in newest if not one.outputs),
        *(
            f"output {name!r} keeps this record if a try of the batch has written it: it writes no partition twice, under any driver"
            for name in outputs
            if name not in known
        ),
    ]
