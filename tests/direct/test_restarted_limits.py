"""How many records the first batch of a restart takes: by the completions of the last driver."""

from __future__ import annotations

from kstream.checkpoint import read_log
from kstream.direct.log_plan import LogPlan
from kstream.offsets.catch_up import SHARE, START_MS
from tests.direct.memory_log import A, MemoryLog, MemoryStream
from tests.fakes import FakeHost
from tests.harness import INTERVAL, Driver, World

A_RECORD_MS = INTERVAL // 100
"""What a record costs."""
WITHIN = (START_MS + round(SHARE * INTERVAL)) // A_RECORD_MS
"""How many records the first batch of a restart has time for."""
FIXED = 2_000
CONF = {"spark.streaming.kstream.history": "1h", "spark.streaming.kstream.log.firstBatchRecords": str(FIXED)}


class Shop:
    """A job over one log that needs A_RECORD_MS for each record, through the lives of its drivers."""

    def __init__(self) -> None:
        self.world = World()
        self.log = MemoryLog({A: []})

    def driver(self) -> Driver:
        def build(host: FakeHost, driver: Driver) -> None:
            driver.output(MemoryStream(host, self.log))

        made = Driver(self.world, CONF, build=build)
        made.before_job = lambda time: made.clock.advance(A_RECORD_MS * self.records()[time], wait=False)
        return made.start()

    def batch(self, driver: Driver, produced: int) -> int:
        """A batch, after so many records were produced; the number of its records."""
        self.log.add(A, *range(produced))
        time = driver.tick()
        driver.settle()
        return self.records()[time]

    def records(self) -> dict[int, int]:
        """The records of each batch in the log, by batch time."""
        plans = read_log(self.world.store).plans.values()
        return {plan.time.milliseconds: LogPlan.decode(*plan.inputs.values()).num_records for plan in plans}

    def first_batch_after(self, waiting: int) -> int:
        """So many records come while no driver runs; the number of records in the first batch of the next driver."""
        self.log.add(A, *range(waiting))
        self.world.clock.advance(3 * INTERVAL, wait=False)
        driver = self.driver()
        driver.settle()
        submitted = [event.info.numRecords() for event in driver.listener.named("onBatchSubmitted")]
        return next(records for records in submitted if records)


def test_after_a_downtime_the_first_batch_takes_some_seconds_worth() -> None:
    shop = Shop()
    driver = shop.driver()
    assert [shop.batch(driver, produced) for produced in (30, 10, 0, 20)] == [30, 10, 0, 20]
    driver.kill()
    assert shop.first_batch_after(waiting=5_000) == WITHIN


def test_without_a_measure_the_first_batch_of_a_restart_takes_the_fixed_number() -> None:
    shop = Shop()
    driver = shop.driver()
    assert [shop.batch(driver, 0), shop.batch(driver, 0)] == [0, 0]
    driver.kill()
    assert shop.first_batch_after(waiting=5_000) == FIXED
