"""CheckpointReader: reads what the page shows of a checkpoint: the newest batches, the newest entries of the ledger, the driver.

A first look reads the newest plans, what became of them, and segments of the history until there are enough batches. A later look lists
names and reads what is new, because these records never change. A look costs about twenty small requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kstream.batch import BatchDelays, BatchPlan
from kstream.batch_time import Duration, Time
from kstream.checkpoint import LogContents, names, read_log
from kstream.checkpoint.driver_status import LastError
from kstream.checkpoint.history import LedgerEntry, PastBatch, read_newest_entries, read_segment, segments
from kstream.checkpoint.outcomes import failure_names, read_completion, read_failure
from kstream.checkpoint.plan_log import epoch_taken_ms
from kstream.checkpoint.reader import PlanKey
from kstream.checkpoint.sign_of_life import Found, Sign, clock_ahead_ms, duration_text, find_driver
from kstream.clock import Clock
from kstream.errors import CheckpointError, MissingFileError
from kstream.monitoring.batch_row import BatchRow
from kstream.storage import FileStore
from kstream.storage.read_once import ReadOnceStore
from kstream.ui.stored_facts import KnownBatch, Outcome, facts_of, stored_row

LEDGER = 500
"""The most records of the ledger that are read."""
_KEPT = 4000
"""The most small records that are kept: those of the batches and of the ledger."""
_CONSTANT = frozenset({names.DONE, names.FAILED, names.GIVEN_UP, names.LOST, names.SKIPPED, names.SETTLED, names.ADOPTED})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint at one moment.

    Attributes:
        url: the checkpoint.
        read_ms: the moment, in milliseconds since the Unix epoch.
        interval: the batch interval; 0 ms if no driver has stored one.
        contents: the newest plans of the log.
        batches: the newest batches, newest first.
        rows: their rows.
        last_error: the last error of the newest driver that has left a status record; None without one.
        driver: the driver, by its newest sign of life.
        started_ms: when the newest driver took its epoch; None before the first.
        entries: the newest entries of the ledger, newest first.
        older_entries: how many older ones nobody has acknowledged.
    """

    url: str
    read_ms: int
    interval: Duration
    contents: LogContents
    batches: Sequence[KnownBatch]
    rows: Sequence[BatchRow]
    last_error: LastError | None
    driver: Found
    started_ms: int | None
    entries: Sequence[LedgerEntry]
    older_entries: int


class CheckpointReader:
    """Reads one checkpoint again and again. Used by one thread at a time.

    Args:
        store: the checkpoint.
        last: the most batches.
        clock: tells the moment.
    """

    def __init__(self, store: FileStore, last: int, clock: Clock) -> None:
        self._store = ReadOnceStore(store, _is_constant, _KEPT)
        self._last = last
        self._clock = clock
        self._plans: dict[PlanKey, BatchPlan] = {}
        self._segments: dict[str, list[PastBatch]] = {}
        self._sign: Sign | None = None
        self._signed_ms = 0
        self._ahead_ms = 0

    def read(self) -> Snapshot:
        """Return the checkpoint as it is now. Only what is new since the last call is read. Blocks on the store.

        Raises:
            CheckpointError: a record is damaged. The next call reads all records anew.
            StorageError: the store failed.
        """
        try:
            return self._read()
        except CheckpointError:
            self._store.forget()
            self._plans, self._segments = {}, {}
            raise

    def _read(self) -> Snapshot:
        """Do the work of `read`, which forgets all that is kept if a record is damaged."""
        contents = read_log(self._store, self._last, self._plans)
        self._plans = {(time, plan.epoch): plan for time, plan in contents.plans.items()}
        batches = {batch.plan.time: batch for batch in self._of_log(contents)}
        for batch in self._of_history(self._last - len(batches)):
            batches.setdefault(batch.plan.time, batch)
        if contents.meta is not None and contents.meta.after is None:
            batches.pop(contents.meta.zero_time, None)  # the starting point is no batch
        driver = self._driver()
        entries, older = read_newest_entries(self._store, LEDGER)
        newest = [batches[time] for time in sorted(batches, reverse=True)][: self._last]
        known = _with_ledger_and_status(newest, entries, driver)
        error = None if driver.sign is None else driver.sign.status.last_error
        return Snapshot(
            url=self._store.url,
            read_ms=self._clock.time_ms(),
            interval=Duration(0) if contents.meta is None else contents.meta.interval,
            contents=contents,
            batches=known,
            rows=[stored_row(batch, facts_of(batch, error)) for batch in known],
            last_error=error,
            driver=driver,
            started_ms=self._started_ms(driver),
            entries=entries[::-1],
            older_entries=older,
        )

    def _of_log(self, contents: LogContents) -> list[KnownBatch]:
        """Return the batches of the log with their completions and last failures, which are read; without tombstones."""
        failed = failure_names(self._store) if contents.failures else {}
        found: list[KnownBatch] = []
        for time, plan in contents.plans.items():
            if plan.void:
                continue
            records = failed.get((time, plan.epoch), [])
            last_failure = read_failure(self._store, records[-1]) if records else None
            batch = KnownBatch(plan, _outcome(contents, time), failures=contents.failures.get(time, 0), last_failure=last_failure)
            ended = read_completion(self._store, time, plan.epoch) if batch.outcome == "done" else None
            if ended is None:
                found.append(replace(batch, skipped=contents.skipped.get(time, ())))
                continue
            errors = {stream: sum(number for _, _, number in kinds) for stream, kinds in ended.errors.items()}
            known = replace(batch, counts=ended.counts, errors=errors, skipped=ended.skipped, delays=ended.delays, figures=ended.figures)
            found.append(known)
        return found

    def _of_history(self, wanted: int) -> list[KnownBatch]:
        """Return at least so many batches of the history, the newest, if it has them. Keeps their segments."""
        kept: dict[str, list[PastBatch]] = {}
        for name in reversed(segments(self._store)) if wanted > 0 else ():
            if sum(map(len, kept.values())) >= wanted:
                break
            try:
                kept[name] = self._segments[name] if name in self._segments else read_segment(self._store, name)
            except MissingFileError:  # clean-up has removed it since the listing
                continue
        self._segments = kept
        past = [batch for segment in kept.values() for batch in segment]
        listed = self._store.list(names.GIVEN_UP) if any(batch.counts is None for batch in past) else ()
        given_up = {names.parse_key(name) for name in listed}
        return [
            KnownBatch(b.plan, "done", b.counts, skipped=b.skipped, delays=b.delays, figures=b.figures)
            if b.counts is not None
            else KnownBatch(b.plan, "given up" if (b.plan.time, (b.plan.epoch,)) in given_up else "pending", skipped=b.skipped)
            for b in past
        ]

    def _driver(self) -> Found:
        """Return the newest driver with its sign of life.

        If a renewal of the sign was seen that looks old, the clock here is wrong. Then its age is corrected, and a sentence says so.
        """
        found = find_driver(self._store, 0, now_ms=self._clock.time_ms)
        sign, before, elapsed = found.sign, self._sign, self._clock.monotonic_ms() - self._signed_ms
        if sign is not None and before is not None:
            self._ahead_ms = clock_ahead_ms(sign, before, elapsed, self._ahead_ms)
        self._sign, self._signed_ms = sign, self._clock.monotonic_ms()
        if sign is None or not self._ahead_ms or sign.status.ended is not None:
            return found
        said = f"the clock of this machine is {duration_text(self._ahead_ms)} ahead of the one that dates the records of {sign.status.host}"
        corrected = replace(sign, now_ms=sign.now_ms - self._ahead_ms)
        return Found(corrected, found.epoch, [*found.skews, said])

    def _started_ms(self, driver: Found) -> int | None:
        """Return when the newest driver has started: by its sign of life, else when it took its epoch."""
        if driver.sign is not None and driver.sign.status.epoch == driver.epoch:
            return driver.sign.status.started_ms
        return epoch_taken_ms(self._store, driver.epoch) if driver.epoch else None


def _is_constant(name: str) -> bool:
    """Return whether a record never changes, and is small. Plans and segments are kept as they were decoded."""
    return name.partition("/")[0] in _CONSTANT or names.parse_epoch(name) is not None


def _outcome(contents: LogContents, time: Time) -> Outcome:
    """Return what became of a batch of the log."""
    if time in contents.done:
        return "done"
    if time in contents.given_up:
        return "given up"
    return "failed" if time in contents.failures else "pending"


def _with_ledger_and_status(batches: Iterable[KnownBatch], entries: Iterable[LedgerEntry], driver: Found) -> list[KnownBatch]:
    """Return the batches with what the ledger (losses, failures) and the status record (delays) know of them.

    Args:
        batches: the batches.
        entries: the ledger, oldest first.
        driver: the driver, by its newest sign of life.
    """
    losses = {entry.time: entry.streams for entry in entries if entry.kind == "lost"}
    given_up = {entry.time: entry.failures for entry in entries if entry.kind == "given-up"}
    recent = () if driver.sign is None else driver.sign.status.recent
    measured = [f for f in recent if f.scheduling_delay_ms >= 0 and f.processing_ms >= 0]
    delays = {f.time: BatchDelays(f.scheduling_delay_ms, f.processing_ms) for f in measured}
    return [
        replace(
            batch,
            failures=max(batch.failures, given_up.get(batch.plan.time, 0) if batch.outcome == "given up" else 0),
            losses=losses.get(batch.plan.time, {}),
            delays=batch.delays or delays.get(batch.plan.time),
        )
        for batch in batches
    ]
