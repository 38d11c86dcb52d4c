"""A seed is a story: told again, in any process, it is the same line by line."""

from __future__ import annotations

from tests.simulator import NumberSource, Scenario, run_schedule
from tests.simulator.faults import TAKEOVERS
from tests.simulator.kafka import KafkaSource
from tests.simulator.states import StatesSource
from tests.simulator.telling import printed_in_a_process_of

CODE = """
import hashlib
from tests.simulator.kafka import KafkaSource
from tests.simulator.states import StatesSource
from tests.simulator import Scenario, run_schedule
for source, seeds in ((KafkaSource, 40), (StatesSource, 10)):
    for seed in range(seeds):
        print(seed, hashlib.sha256("\\n".join(run_schedule(seed, Scenario(source)).trace).encode()).hexdigest())
"""


def test_the_same_seed_gives_the_same_trace() -> None:
    for scenario in (Scenario(KafkaSource), Scenario(NumberSource, faults=TAKEOVERS), Scenario(StatesSource)):
        for seed in range(15):
            first, again = run_schedule(seed, scenario), run_schedule(seed, scenario)
            assert first.trace == again.trace
            assert first.history.attempts == again.history.attempts


def test_another_seed_is_another_story() -> None:
    traces = {tuple(run_schedule(seed, Scenario(KafkaSource)).trace) for seed in range(15)}
    assert len(traces) == 15


def test_the_trace_does_not_depend_on_the_process_or_its_hash_seed() -> None:
    told = [printed_in_a_process_of(hash_seed, CODE) for hash_seed in ("1", "2")]
    assert told[0] == told[1] and len(told[0].splitlines()) == 50
