"""Plans above an unfinished batch are removed, and nothing that a fenced driver writes late takes their place."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kstream.batch import BatchOutcome, BatchPlan
from kstream.batch.retention import required_batches
from kstream.batch_time import Duration, Time
from kstream.checkpoint import LogContents, PlanLog, names, read_log
from kstream.checkpoint.binding import rebound
from kstream.checkpoint.format import encode_plan
from kstream.checkpoint.history import read_history
from kstream.checkpoint.missing_plans import holes
from kstream.checkpoint.plan_log import take_epoch
from kstream.checkpoint.reader import delete_superseded, record_takeover
from kstream.checkpoint.settled import AT_ONCE, Settled, read_settled, thinned, united, write_settled
from kstream.errors import CorruptRecordError, FencedError, StorageError
from kstream.storage import FileStore, MemoryFileStore
from tests.stores import CountingStore, FaultyStore

SECOND = Duration(1000)
SETTLED_BYTES = (
    b'{"after":1000,"checksum":"3bfaf3fa4ec2d547d2242b5b9328692e8cbea36f3b3bf7f5d53eed5b9d72a163","epoch":1,"kind":"settled","plans":[{"after":0,"epoch":1,"floor":1000,'
    b'"inputs":{"0":{"from":2,"until":3}},"nonce":"n2-1","records":{},"time":2000,"void":false},{"after":0,"epoch":1,"floor":1000,'
    b'"inputs":{"0":{"from":11,"until":12}},"nonce":"n11-1","records":{},"time":11000,"void":false}],"until":11000,"version":1}'
)


@pytest.fixture
def store() -> MemoryFileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


def at(number: int) -> Time:
    return Time(number * 1000)


class Writer:
    """A driver: it plans batches, ends them all but the failed ones, and cleans up."""

    def __init__(self, store: FileStore, open_batches: Sequence[int] = (), **options: Any) -> None:
        self.store = store
        self.epoch = take_epoch(store, 0)
        contents = read_log(store)
        assert list(gaps(contents)) == []
        record_takeover(store, contents, self.epoch)
        delete_superseded(store, contents, self.epoch)
        self.after = contents.last_planned or Time(0)
        self.unfinished = {*contents.pending}
        self.failing = {at(number) for number in open_batches}
        self.remember = SECOND
        self.log = PlanLog(store, self.epoch, contents, **options)

    def plan(self, number: int, names: Mapping[int, str | None] | None = None) -> BatchPlan:
        floor = min([*self.unfinished, at(number)])
        data = {0: {"from": number, "until": number + 1}}
        nonce = f"n{number}-{self.epoch}"
        return BatchPlan(at(number), self.epoch, nonce, data, {}, floor, self.after, names=names or {})

    def run(self, numbers: range, clean: bool = True, **options: Any) -> Writer:
        for number in numbers:
            self.log.write_plan(self.plan(number, **options))
            if at(number) in self.failing:
                self.log.probe()
                self.unfinished.add(at(number))
            else:
                self.log.complete(at(number), self.epoch, BatchOutcome(0))
            if clean:
                self.clean(number)
        return self

    def succeed(self, number: int, epoch: int = 1) -> None:
        """A batch that had failed has ended now."""
        self.log.complete(at(number), epoch, BatchOutcome(0))
        self.unfinished.discard(at(number))

    def clean(self, number: int) -> None:
        self.log.clean(required_batches(self.unfinished, at(number), self.remember))


def gaps(contents: LogContents) -> list[tuple[int, int]]:
    """The holes of a log: seconds of the plans before and after."""

    def skipped(before: BatchPlan, after: BatchPlan) -> Sequence[str]:
        until, begin = before.inputs[0]["until"], after.inputs[0]["from"]
        return [f"[{until}, {begin})"] if until < begin else ()

    found = holes(contents, SECOND, {0: skipped})
    return [(hole.before.milliseconds // 1000, hole.after.milliseconds // 1000) for hole in found]


def seconds(times: Sequence[Time]) -> list[int]:
    return sorted(time.milliseconds // 1000 for time in times)


def plans(store: FileStore) -> list[int]:
    return seconds([key[0] for key in map(names.parse_key, store.list("plans")) if key is not None])


def intervals(store: FileStore) -> list[tuple[int, int]]:
    return [(s.after.milliseconds // 1000, s.until.milliseconds // 1000) for s in read_settled(store)]


def files(store: FileStore) -> int:
    return sum(len(store.list(folder)) for folder in ("plans", "done", "settled", "failed", "history"))


# -- what goes, and what stays


@pytest.mark.parametrize("batches", [40, 400])
def test_one_failed_batch_keeps_its_plan_and_one_interval_however_long_the_driver_lives(store: MemoryFileStore, batches: int) -> None:
    Writer(store, [3]).run(range(1, batches + 6))
    healthy = MemoryFileStore(f"memory://{uuid.uuid4().hex}")
    Writer(healthy).run(range(1, batches + 6))
    assert intervals(store) == [(3, batches + 3)]
    assert plans(store) == [3, *plans(healthy)] == [3, batches + 4, batches + 5]
    assert files(store) == files(healthy) + 2  # the plan of the failed batch, and the interval
    assert read_log(store).pending == [at(3)]


def test_windows_of_the_failed_batch_stay_too(store: MemoryFileStore) -> None:
    writer = Writer(store, [6, 9])
    writer.remember = SECOND * 3
    writer.run(range(1, 31))
    assert plans(store) == [*range(4, 10), *range(20, 31)]
    assert intervals(store) == [(9, 19)]


def test_between_failed_batches_are_intervals_of_their_own_which_join_when_a_batch_succeeds(store: MemoryFileStore) -> None:
    writer = Writer(store, [3, 6, 9]).run(range(1, 31))
    assert intervals(store) == [(3, 5), (6, 8), (9, 25)]
    assert plans(store) == [3, 6, 9, *range(26, 31)] and gaps(read_log(store)) == []
    writer.succeed(6)
    writer.run(range(31, 40))
    assert intervals(store) == [(3, 8), (9, 34)] and plans(store) == [3, 9, *range(35, 40)]
    writer.succeed(3)
    writer.run(range(40, 43))
    assert intervals(store) == [(9, 34)] and plans(store) == [9, *range(35, 43)]


def test_when_no_batch_is_unfinished_any_more_nothing_is_left_of_it(store: MemoryFileStore) -> None:
    writer = Writer(store, [3]).run(range(1, 50))
    writer.succeed(3)
    writer.run(range(50, 54))
    assert intervals(store) == [] and plans(store) == seconds([key.time for key in read_log(store).plans.values()]) == [52, 53]
    assert len(store.list("done")) == 2


def test_a_history_has_what_was_removed_above_a_failed_batch(store: MemoryFileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstream.checkpoint.history.SEGMENT", 10)
    writer = Writer(store, [3], keep_history=Duration(1_000_000)).run(range(1, 46))
    assert seconds([past.plan.time for past in read_history(store)]) == [n for n in range(1, 42) if n != 3]
    assert plans(store) == [3, 42, 43, 44, 45] and intervals(store) == [(3, 41)]
    writer.succeed(3)
    writer.run(range(46, 60))
    assert 3 in seconds([past.plan.time for past in read_history(store)]) and intervals(store) == []


def test_ten_plans_above_a_failed_batch_cost_one_record_one_probe_and_one_delete_more(store: MemoryFileStore) -> None:
    counting = CountingStore(store)
    writer = Writer(counting, [3]).run(range(1, 26))
    costs = set[tuple[tuple[str, int], ...]]()
    for start in range(26, 386, AT_ONCE):
        counting.take()
        writer.run(range(start, start + AT_ONCE))
        calls = [(verb, name.split("/")[0]) for verb, name, _ in counting.take()]
        assert [call for call in calls if call[1] == "settled"] == [("create", "settled"), ("delete", "settled")]
        costs.add(tuple((verb, [v for v, _ in calls].count(verb)) for verb in ("create", "delete", "exists", "read", "list")))
    assert costs == {(("create", 2 * AT_ONCE + 1), ("delete", 2 * AT_ONCE + 1), ("exists", 1), ("read", 2), ("list", 0))}


def test_without_a_failed_batch_no_interval_is_stored_and_none_is_asked_for(store: MemoryFileStore) -> None:
    counting = CountingStore(store)
    writer = Writer(counting)
    counting.take()
    writer.run(range(1, 60))
    assert {name.split("/")[0] for _, name, _ in counting.take()} == {"plans", "done"}


# -- strays


def life_of_three_drivers(store: MemoryFileStore, faulty: FaultyStore) -> None:
    """Batch 2 fails. Driver 1 is replaced after batch 5, driver 2 after batch 11; driver 3 runs on and cleans up, through `faulty`."""
    Writer(store, [2]).run(range(1, 6), clean=False)
    Writer(store).run(range(6, 12), clean=False)
    last = Writer(faulty)
    last.run(range(12, 40), clean=False)
    last.clean(39)


def strays(store: MemoryFileStore) -> None:
    """What drivers 1 and 2, long fenced, still write: plans of times that their successors have planned, or have left out."""
    for number, epoch, after in ((6, 1, 0), (7, 1, 0), (12, 2, 5), (14, 2, 5)):
        data = {0: {"from": 0, "until": 99}}
        plan = BatchPlan(at(number), epoch, f"stray-{number}-{epoch}", data, {}, at(2), at(after))
        store.create(names.plan(at(number), epoch), encode_plan(plan))


def test_strays_of_two_takeovers_are_dropped_whenever_a_clean_up_is_cut_off(store: MemoryFileStore) -> None:
    """Before and after each write and delete of the clean-up; then again after the next driver has finished the job."""
    counting = CountingStore(store)
    life_of_three_drivers(store, FaultyStore(counting))
    steps = sum(verb in ("create", "delete") and not name.startswith("plans/") for verb, name, _ in counting.take())
    assert steps > 30
    for step in range(80):
        for when in ("before", "after"):
            cut = MemoryFileStore(f"memory://{uuid.uuid4().hex}")
            faulty = FaultyStore(cut)
            cleaning = {"count": -1}

            def fault(verb: str, name: str, cleaning: dict[str, int] = cleaning, step: int = step, when: str = when) -> str | None:
                if name.startswith("settled/") and cleaning["count"] < 0:
                    cleaning["count"] = 0
                if cleaning["count"] < 0 or verb not in ("create", "delete"):
                    return None
                cleaning["count"] += 1
                return when if cleaning["count"] > step else None

            faulty.fault = fault
            try:
                life_of_three_drivers(cut, faulty)
            except StorageError:
                pass
            strays(cut)
            contents = read_log(cut)
            assert contents.pending == [at(2)], (step, when)
            assert gaps(contents) == []
            successor = Writer(cut)
            assert successor.unfinished == {at(2)}
            successor.run(range(40, 60))
            again = read_log(cut)
            assert again.pending == [at(2)] and gaps(again) == [], (step, when)
            ((after, until),) = intervals(cut)
            assert after == 2 and plans(cut) == [2, *range(until + 1, 60)] and len(plans(cut)) <= AT_ONCE + 2


def test_a_stray_in_an_interval_is_no_reason_to_refuse_if_it_is_damaged(store: MemoryFileStore) -> None:
    Writer(store, [2]).run(range(1, 30))
    store.create(names.plan(at(7), 1), b"junk")
    contents = read_log(store)
    assert contents.pending == [at(2)] and (at(7), 1) in contents.superseded
    delete_superseded(store, contents, 2)
    assert 7 not in plans(store)


def test_a_stray_of_a_higher_epoch_in_an_interval_supersedes_no_plan_behind_it(store: MemoryFileStore) -> None:
    writer = Writer(store, [2, 20])
    writer.run(range(1, 40))
    store.create(names.plan(at(7), 9), encode_plan(BatchPlan(at(7), 9, "s", {0: {"from": 0, "until": 1}}, {}, at(2), at(6))))
    assert read_log(store).pending == [at(2), at(20)]


def test_the_late_write_of_a_plan_that_was_removed_does_not_bring_it_back(store: MemoryFileStore) -> None:
    writer = Writer(store, [2])
    writer.run(range(1, 30))
    store.create(names.plan(at(7), 1), encode_plan(writer.plan(7)))
    assert read_log(store).pending == [at(2)]


def test_a_pending_batch_beside_an_interval_stands(store: MemoryFileStore) -> None:
    """An interval one batch too long would lose it."""
    Writer(store, [2, 14]).run(range(1, 40))
    assert intervals(store) == [(2, 13), (14, 33)]
    assert read_log(store).pending == [at(2), at(14)]


# -- who may remove


def test_the_interval_is_stored_and_the_driver_probes_before_a_plan_goes(store: MemoryFileStore) -> None:
    counting = CountingStore(store)
    writer = Writer(counting, [2]).run(range(1, 30), clean=False)
    writer.clean(13)
    calls = [(verb, name.split("/")[0]) for verb, name, _ in counting.take() if verb != "read"][-25:]
    settled = calls.index(("create", "settled"))
    probed = calls.index(("exists", "epoch-2"))
    assert settled < probed < min(i for i, call in enumerate(calls) if call == ("delete", "plans") and i > settled - 1)


def test_a_fenced_driver_removes_no_plan_above_an_unfinished_batch(store: MemoryFileStore) -> None:
    """Its successor may have read the log before the interval was there."""
    writer = Writer(store, [2]).run(range(1, 30), clean=False)
    take_epoch(store, 0)
    before = [n for n in plans(store) if n >= 2]
    with pytest.raises(FencedError):
        writer.clean(29)
    assert [n for n in plans(store) if n >= 2] == before


def test_a_fenced_driver_removes_nothing_by_the_low_watermark_of_its_stray_plan(store: MemoryFileStore) -> None:
    """Batches 2 and 3 are pending for the successor. The fenced driver ends them, and its stray plan says so. The simulator found this."""
    writer = Writer(store, [2, 3]).run(range(1, 5))
    successor = Writer(store)
    assert successor.unfinished == {at(2), at(3)}
    writer.succeed(2)
    writer.succeed(3)
    writer.log.write_plan(writer.plan(5))
    writer.clean(5)
    assert plans(store) == [2, 3, 4, 5]


def test_a_fenced_driver_removes_no_interval(store: MemoryFileStore) -> None:
    writer = Writer(store, [2]).run(range(1, 30))
    writer.succeed(2)
    writer.run(range(30, 32), clean=False)
    take_epoch(store, 0)
    with pytest.raises(FencedError):
        writer.clean(31)
    assert intervals(store) != []


def test_an_interval_stays_until_both_newest_plans_have_a_higher_low_watermark(store: MemoryFileStore) -> None:
    """The newest plan may be damaged and given up; the other one then says what has ended."""
    writer = Writer(store, [2]).run(range(1, 30))
    writer.succeed(2)
    writer.run(range(30, 31))
    assert intervals(store) != []
    writer.run(range(31, 33))
    assert intervals(store) == []


def test_a_clean_up_that_failed_half_way_is_gone_on_with(store: MemoryFileStore) -> None:
    faulty = FaultyStore(store)
    writer = Writer(faulty, [2]).run(range(1, 30), clean=False)
    faulty.fault = lambda verb, name: "after" if (verb, name) == ("delete", names.plan(at(7), 1)) else None
    with pytest.raises(StorageError):
        writer.clean(29)
    assert gaps(read_log(store)) == [] and read_log(store).pending == [at(2)]
    faulty.fault = lambda _verb, _name: None
    writer.clean(29)
    assert plans(store) == [2, 28, 29] and intervals(store) == [(2, 27)]


def test_an_interval_that_a_crash_left_with_its_plans_is_joined_by_the_next_one(store: MemoryFileStore) -> None:
    """Driver after driver dies when its interval is stored and none of its plans is removed."""
    faulty, number = FaultyStore(store), 12
    writer = Writer(faulty, [2]).run(range(1, number + 1), clean=False)
    for _ in range(4):
        last, number = number, number + AT_ONCE
        writer.run(range(last + 1, number + 1), clean=False)
        faulty.fault = lambda verb, name: "before" if (verb, name) == ("delete", names.plan(at(3), 1)) else None
        with pytest.raises(StorageError):
            writer.clean(number)
        assert plans(store) == list(range(2, number + 1)), "none above the failed batch is removed"
        assert intervals(store) == [(2, number - 2)]
        faulty.fault = lambda _verb, _name: None
        writer = Writer(faulty)
    writer.clean(number)
    assert plans(store) == [2, number - 1, number] and intervals(store) == [(2, number - 2)]
    assert read_log(store).pending == [at(2)] and gaps(read_log(store)) == []


# -- reading


def test_plans_that_are_removed_while_the_log_is_read_are_no_hole(store: MemoryFileStore) -> None:
    """The reader has listed the plans; then the driver stores the interval and removes them."""
    writer = Writer(store, [2]).run(range(1, 30), clean=False)
    done = {"yet": False}

    class Late(FaultyStore):
        def read(self, name: str) -> bytes:
            if name.startswith("plans/") and not done["yet"]:
                done["yet"] = True
                writer.clean(29)
            return super().read(name)

    contents = read_log(Late(store))
    assert done["yet"] and gaps(contents) == [] and contents.pending == [at(2)]


def test_a_missing_plan_beside_an_interval_is_found(store: MemoryFileStore) -> None:
    Writer(store, [2, 14]).run(range(1, 40))
    store.delete(names.plan(at(14), 1))
    assert gaps(read_log(store)) == [(13, 15)]


def test_streams_are_followed_through_graphs_whose_plans_are_removed(store: MemoryFileStore) -> None:
    """The stream of batch 2 had no name, got one, and then another stream took its number."""
    Writer(store, [2]).run(range(1, 14))
    Writer(store).run(range(14, 26), names={0: "orders"})
    third = Writer(store)
    for number in range(26, 50):
        plan = third.plan(number, names={0: "other", 1: "orders"})
        data = {0: {"from": 0, "until": 0}, 1: plan.inputs[0]}
        third.log.write_plan(BatchPlan(plan.time, 3, plan.nonce, data, {}, plan.floor, plan.after, names=plan.names))
        third.log.complete(at(number), 3, BatchOutcome(0))
        third.clean(number)
    contents = read_log(store)
    assert 14 not in seconds(list(contents.plans))
    now = rebound(contents, {0: "other", 1: "orders"})
    assert now.plans[at(2)].inputs == {1: {"from": 2, "until": 3}}
    both = {0: "other", 1: "orders"}
    assert [plan.streams for plan in contents.settled[0].plans] == [{0: None}, {0: "orders"}, both, both]


def test_records_that_a_crash_left_beside_the_one_that_replaces_them_are_removed(store: MemoryFileStore) -> None:
    Writer(store, [2]).run(range(1, 30))
    (whole,) = read_settled(store)
    write_settled(store, Settled(whole.after, at(9), whole.plans[:1], 1))
    contents = read_log(store)
    assert [s.until for s in united(contents.settled)] == [whole.until] and gaps(contents) == []
    Writer(store).run(range(30, 31))
    assert len(intervals(store)) == 1


def test_of_two_records_of_one_interval_that_a_fenced_driver_and_its_successor_wrote_one_stays(store: MemoryFileStore) -> None:
    """The fenced driver settled the plans before it probed, and its successor settled them too. The simulator found this."""
    Writer(store, [2]).run(range(1, 30))
    (whole,) = read_settled(store)
    write_settled(store, Settled(whole.after, whole.until, whole.plans, 2))
    Writer(store).run(range(30, 31))
    assert intervals(store) == [(whole.after.milliseconds // 1000, whole.until.milliseconds // 1000)]
    assert gaps(read_log(store)) == []


def test_completions_in_an_interval_are_removed_by_the_next_start(store: MemoryFileStore) -> None:
    """A clean-up that was killed between a plan and its completion leaves one."""
    writer = Writer(store, [2]).run(range(1, 30))
    writer.log.complete(at(7), 1, BatchOutcome(0))
    delete_superseded(store, read_log(store), 2)
    assert names.key(at(7), 1) not in store.list("done")


def test_the_bytes_and_the_name_of_a_settled_interval(store: MemoryFileStore) -> None:
    Writer(store, [1]).run(range(1, 14))
    assert store.list("settled") == ["000000000001000-000000000011000-000001"]
    stored = store.read("settled/000000000001000-000000000011000-000001")
    assert stored == SETTLED_BYTES
    (interval,) = read_settled(store)
    assert (interval.after, interval.until, interval.epoch, len(interval.plans)) == (at(1), at(11), 1, 2)


def test_a_damaged_or_renamed_interval_is_an_error_that_names_it(store: MemoryFileStore) -> None:
    Writer(store, [1]).run(range(1, 14))
    name = f"settled/{store.list('settled')[0]}"
    store.create("settled/000000000001000-000000000012000-000001", store.read(name))
    with pytest.raises(CorruptRecordError, match="000000000012000"):
        read_log(store)
    store.delete("settled/000000000001000-000000000012000-000001")
    store.replace(name, b"junk")
    with pytest.raises(CorruptRecordError, match="settled/"):
        read_log(store)


def test_tombstones_and_repeated_graphs_are_not_kept_in_an_interval() -> None:
    def plan(number: int, void: bool = False, name: str | None = None) -> BatchPlan:
        return BatchPlan(at(number), 1, "n", {} if void else {0: {}}, {}, at(1), void=void, names={0: name} if name else {})

    found = thinned([plan(5), plan(1, void=True), plan(2), plan(3), plan(4, name="a"), plan(6, void=True)])
    assert seconds([p.time for p in found]) == [2, 4, 5]
    assert thinned([plan(1, void=True)]) == ()
