"""The lag of an input: a batch counts from its plan until it has succeeded, whether it waits, runs or has failed."""

from __future__ import annotations

from kstream.batch import StreamInputInfo
from kstream.batch_time import Time
from kstream.scheduler.input_lags import InputLags

FIRST, SECOND, THIRD = (Time(1000 * n) for n in (1, 2, 3))


def told(start: int, end: int, latest: int | None, stream: int = 0) -> StreamInputInfo:
    progress = {"startOffset": {"t": {"0": start}}, "endOffset": {"t": {"0": end}}, "latestOffset": latest and {"t": {"0": latest}}}
    return StreamInputInfo(stream, end - start, {"progress": progress})


class Told:
    """Lags of one input, and the batches that have not succeeded."""

    def __init__(self) -> None:
        self.unfinished = {FIRST, SECOND, THIRD}
        self.lags = InputLags(lambda: self.unfinished, None)
        for time, start in ((FIRST, 0), (SECOND, 10), (THIRD, 20)):
            self.lags.planned(time, [told(start, start + 10, start + 15)], time.milliseconds)

    def records(self) -> tuple[int, int]:
        (lag,) = self.lags.lags().values()
        return lag.records, lag.unplanned


def test_a_batch_counts_for_the_lag_until_it_and_all_before_it_have_succeeded() -> None:
    made = Told()
    assert made.records() == (35, 5)
    made.unfinished = {FIRST, THIRD}
    assert made.records() == (35, 5), "the second has succeeded, and the first waits or has failed"
    made.unfinished = {THIRD}
    assert made.records() == (15, 5)
    made.unfinished = set()
    assert made.records() == (5, 5)


def test_a_pending_batch_of_an_earlier_driver_counts_although_its_plan_does_not_know_the_ends() -> None:
    lags = InputLags(lambda: {FIRST}, FIRST)
    lags.planned(FIRST, [told(0, 10, None)], 5000)
    assert lags.lags() == {}, "nobody knows the ends yet"
    lags.planned(SECOND, [told(10, 10, 12)], 6000)
    (lag,) = lags.lags().values()
    assert (lag.records, lag.unplanned, lag.at_ms) == (12, 2, 6000)


def test_batches_that_have_succeeded_are_forgotten() -> None:
    lags = InputLags(set, None)
    for n in range(1000):
        lags.planned(Time(n * 1000), [told(n, n + 1, n + 1)], n * 1000)
    assert len(lags._progress) == 1


def test_each_input_has_its_own_lag() -> None:
    lags = InputLags(set, None)
    lags.planned(FIRST, [told(0, 10, 12, stream=1), told(0, 10, 17), StreamInputInfo(2, 3)], 1000)
    assert {number: lag.records for number, lag in lags.lags().items()} == {0: 7, 1: 2}
