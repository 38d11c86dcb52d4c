"""A query from Kafka to Kafka, by our source and sink and by Spark's own, side by side in one run.

    python -m integration.benchmarks.structured_sink [--records N] [--triggers N] [--rounds N] [--alone]

Each trigger has 40,000 records of 100 B with keys, from four partitions to four. Our sink writes them exactly once, and Spark's at least
once, because it has nothing else. Our at-least-once form is a report. The sides run in a local[2] of their own, in turns (`structured`).
The first triggers of a stream are left out. A rate is the records of a trigger by the median `triggerExecution`. Each figure is the median
over the rounds.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from integration.benchmarks.data_frames import PARTITIONS, json_records
from integration.benchmarks.harness import add_alone, make_topic, parser_of, running_kafka
from integration.benchmarks.jvm_parts import PartsMissingError, connector_parts
from integration.benchmarks.structured import Bar, Figures, Side, a_side, ratio_of, rounds_of, starting_at
from integration.kafka_handle import KafkaHandle

OURS, AT_LEAST_ONCE, SPARKS = "exactly-once", "at-least-once", "Spark's"
COLD = 3
"""How many triggers of a stream are left out."""
RATE = "records/s"
BAR = Bar("exactly once, rate / that of Spark's source and sink", ratio_of(RATE), True, 0.6)


def figures_of(side: Side, bootstrap: str, topic: str, sink: Mapping[str, str], records: int, triggers: int) -> Figures:
    """Return the rate of a query, and the median milliseconds of its triggers by name.

    Args:
        side: runs the query.
        bootstrap: the brokers.
        topic: what it reads.
        sink: the options of its sink.
        records: those of a trigger.
        triggers: how many triggers it has.
    """
    brokers = {"kafka.bootstrap.servers": bootstrap}
    options = {**brokers, "subscribe": topic, "startingOffsets": starting_at(topic, 0), "maxOffsetsPerTrigger": str(records)}
    stream = {"options": options, "records": records * triggers, "through": "pairs", "sink": {**brokers, **sink}}
    warm = [times for rows, times in side(stream) if rows][COLD:]
    figures = {name: statistics.median(times.get(name, 0) for times in warm) for name in sorted(warm[-1])}
    return {RATE: records / figures["triggerExecution"] * 1000, **figures}


def described(name: str, rounds: Sequence[Figures]) -> str:
    """Return a line with the medians of a query: its rate, and where the time of a trigger goes."""
    medians = {key: statistics.median(figures.get(key, 0.0) for figures in rounds) for key in rounds[0]}
    return f"     {name}: {medians.pop(RATE) / 1e3:.0f} k/s; ms of a trigger: {', '.join(f'{key} {ms:.0f}' for key, ms in medians.items())}"


def run(kafka: KafkaHandle, records: int, triggers: int, rounds: int, directory: Path, alone: bool) -> int:
    """Make the topics and the sides, measure and print. Return the exit status."""
    topic = make_topic(kafka, json_records(records * triggers), PARTITIONS)
    sinks = {OURS: {"topic": "once"}, AT_LEAST_ONCE: {"topic": "again", "delivery": AT_LEAST_ONCE}, SPARKS: {"topic": "sparks"}}
    for sink in sinks.values():
        kafka.create_topic(sink["topic"], PARTITIONS)
    found: list[dict[str, Figures]] = []
    with ExitStack() as stack:
        ours = stack.enter_context(a_side(Path(sys.executable), "kstream", [], directory))
        sides = {OURS: ours, AT_LEAST_ONCE: ours}
        try:
            python, jars, version = connector_parts(alone)
            sides[SPARKS] = stack.enter_context(a_side(python, "kafka", jars, directory))
            print(f"     source and sink of Spark {version}")
        except PartsMissingError as e:
            print(f"     no comparison, so no bar: {e}")
        measure: dict[str, Callable[[], Figures]] = {
            name: lambda name=name, side=side: figures_of(side, kafka.bootstrap, topic, sinks[name], records, triggers)
            for name, side in sides.items()
        }
        for figures in rounds_of(measure, rounds):
            found.append(figures)
            rates = ", ".join(f"{name} {of[RATE] / 1e3:.0f} k/s" for name, of in figures.items())
            print(f"     round {len(found)}: {rates}", flush=True)
    for name in sides:
        print(described(name, [figures[name] for figures in found]))
    if SPARKS not in sides:
        return 0
    is_met, line = BAR.line([(figures[OURS], figures[SPARKS]) for figures in found])
    print(line)
    return 0 if is_met else 1


def main() -> int:
    parser = parser_of(__doc__, records=40_000, triggers=13, rounds=5)
    add_alone(parser)
    args = parser.parse_args()
    with running_kafka() as (kafka, directory):
        return run(kafka, args.records, args.triggers, args.rounds, directory, args.alone)


if __name__ == "__main__":
    sys.exit(main())
