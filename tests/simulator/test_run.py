"""`simulate` and its command line: what holds is counted, what breaks is an error with a seed that can be told again."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from click.testing import CliRunner

from tests.simulator import NO_FAULTS, NumberSource, Scenario, SimulationFailedError, planted, run_schedule, simulate
from tests.simulator.__main__ import main
from tests.simulator.kafka import KafkaSource
from tests.stores import WrappedStore


class StaleStore(WrappedStore):
    """What a careless cache does: a name that was not there once is not looked for again."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.missing: set[str] = set()

    def exists(self, name: str) -> bool:
        if name in self.missing or not super().exists(name):
            self.missing.add(name)
            return False
        return True


class ForgetfulSource(NumberSource):
    """Loses a number now and then: it is planned, and no job ever sees it."""

    def records(self, rdd: Any, surroundings: Any) -> Any:
        return [n for n in rdd if n % 7 != 6]

    def check(self, history: Any) -> list[str]:
        read = {n for a in history.attempts for n in a.read or ()}
        return [f"{n} was never read" for n in range(max(read, default=0)) if n not in read]


def test_what_held_is_counted() -> None:
    report = simulate(schedules=5, faults=NO_FAULTS)
    assert (report.schedules, report.drivers) == (5, 10)
    assert report.attempts == report.batches > 25


def test_a_failure_names_the_seed_and_has_the_trace_also_from_another_process() -> None:
    for processes in (1, 2):
        with pytest.raises(SimulationFailedError, match="was never read") as caught:
            simulate(ForgetfulSource, schedules=50, processes=processes)
        facts = caught.value.facts
        again = run_schedule(facts["seed"], Scenario(ForgetfulSource))
        assert (facts["broken"], facts["trace"]) == (again.broken, again.trace)
        assert pickle.loads(pickle.dumps(caught.value)).facts == facts


def test_the_lowest_seed_is_the_one_that_is_told() -> None:
    with pytest.raises(SimulationFailedError) as caught:
        simulate(ForgetfulSource, schedules=100)
    seed = caught.value.facts["seed"]
    assert all(not run_schedule(earlier, Scenario(ForgetfulSource)).broken for earlier in range(seed))


def test_a_store_of_your_own_is_put_between_and_found_out() -> None:
    simulate(schedules=30, store=WrappedStore)
    with pytest.raises(SimulationFailedError, match=r"had not looked|ran as|is in batch|after its last look"):
        simulate(schedules=1000, store=StaleStore)


def test_the_command_prints_one_schedule_whole() -> None:
    done = CliRunner().invoke(main, ["--seed", "3"])
    trace = run_schedule(3, Scenario(KafkaSource)).trace
    assert done.exit_code == 0
    assert done.output == "\n".join([*trace, "seed 3: all held", ""])


def test_the_command_says_what_held_over_many() -> None:
    done = CliRunner().invoke(main, ["--schedules", "3", "--source", "numbers"])
    assert done.exit_code == 0
    assert done.output.startswith("3 schedules, ") and done.output.endswith(": all held\n")


def test_the_command_prints_the_trace_of_the_seed_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.epoch_is_not_checked(monkeypatch)
    for arguments in (["--seed", "0"], ["--seed", "0", "--schedules", "20"]):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 1
        assert "driver 1 main: create epoch-1" in done.output
        assert "broken:\n  who_runs_has_looked: " in done.output
