"""Streaming queries: `format("kstream")` against Spark's own JVM connector, side by side in one run.

    python -m integration.benchmarks.structured [--bootstrap HOST:PORT] [--records N] [--triggers N] [--rounds N] [--alone]

Without an address it starts a broker of its own. Both sides run the same streams (`timed_streams`) in a local[2] of their own, in turns,
over the same records (4 partitions, JSON values of 100 B) and into the sink `noop`. The times are those that Spark itself reports of each
trigger. A scan is a stream of a few large triggers, of `--records` each; its rate is records by `triggerExecution`. The `--triggers`
small ones have 1,000 records each, and after them come triggers without data. Each figure is the median over the rounds, with the
quartiles; in a round both sides run.

Left out are the first round, in which classes are loaded and workers start, and of each stream the first triggers: COLD.

The connector may need an older Spark than ours (`jvm_parts`). That, and the connector's jars, are fetched once into `.cache/`; where they
cannot be had one line says why, and only our side is measured.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyspark

from integration.benchmarks import timed_streams
from integration.benchmarks.connector_process import running_script
from integration.benchmarks.data_frames import PARTITIONS, json_records
from integration.benchmarks.harness import add_alone, add_bootstrap, make_topic, parser_of, running_kafka
from integration.benchmarks.jvm_parts import PartsMissingError, connector_parts
from integration.kafka_handle import KafkaHandle

SMALL = 1_000
"""The records of a small trigger."""
LARGE_TRIGGERS = 3
IDLE_S = 1.5
"""Seconds of triggers without data: about a hundred of them."""
COLD = {"scan": 1, "records": 3, "idle": 5}
"""How many triggers of a stream are left out: Spark makes its plan and starts the planner, workers make consumers."""
Triggers: TypeAlias = Sequence[tuple[int, Mapping[str, int]]]
"""For each trigger the number of its records, and milliseconds by name."""
Side = Callable[[Mapping[str, Any]], Triggers]
"""Runs a stream of `timed_streams`, and returns its triggers."""
Figures: TypeAlias = dict[str, float]
"""What one side has shown in one round, by name: records a second, and milliseconds."""
SCANS: Mapping[str, Mapping[str, str]] = {
    "all columns": {"through": "columns"},
    "values": {"through": "values", "schema": "value BINARY"},
    "mapInArrow": {"through": "arrow", "schema": "value BINARY"},
}
"""The scans. Only our source takes the schema; a query of the connector selects the column."""


@dataclass(frozen=True)
class Bar:
    """A bar of a comparison, over all rounds.

    Attributes:
        words: what is compared.
        compare: makes our figures and theirs, of one round, a number.
        least: whether the number is to be so high, or at most so high.
        limit: the bar.
    """

    words: str
    compare: Callable[[Figures, Figures], float]
    least: bool
    limit: float

    def line(self, rounds: Sequence[tuple[Figures, Figures]]) -> tuple[bool, str]:
        """Return whether the bar is met, and the line about it."""
        low, median, high = quartiles([self.compare(ours, theirs) for ours, theirs in rounds])
        is_met = median >= self.limit if self.least else median <= self.limit
        found, bar = f"{median:.2f}, quartiles {low:.2f} to {high:.2f}", f"bar: {'>=' if self.least else '<='} {self.limit}"
        return is_met, f"{'ok  ' if is_met else 'MISS'} {self.words}: {found} ({bar})"


def ratio_of(name: str) -> Callable[[Figures, Figures], float]:
    """Return what makes two figures of a name their ratio."""
    return lambda ours, theirs: ours[name] / theirs[name]


def difference_of(name: str) -> Callable[[Figures, Figures], float]:
    """Return what makes two figures of a name their difference."""
    return lambda ours, theirs: ours[name] - theirs[name]


BARS = (
    Bar("scan of all columns, rate / the connector's", ratio_of("all columns"), True, 1.1),
    Bar('scan with .schema("value BINARY"), rate / the connector\'s', ratio_of("values"), True, 1.4),
    Bar("mapInArrow behind it, rate / the connector's", ratio_of("mapInArrow"), True, 1.2),
    Bar("trigger without data, time / the connector's", ratio_of("idle triggerExecution"), False, 1.3),
    Bar("trigger with 1,000 records, time / the connector's", ratio_of("records triggerExecution"), False, 1.6),
    Bar("latestOffset with 1,000 records, ms above the connector's", difference_of("records latestOffset"), False, 10),
    Bar("latestOffset without data, ms above the connector's", difference_of("idle latestOffset"), False, 10),
)


# -- the sides


@contextmanager
def a_side(python: Path, source: str, jars: Sequence[Path], directory: Path) -> Iterator[Side]:
    """Yield a side, which runs in a process of its own. SystemExit with the last words of that process if it ends."""
    log = directory / f"{source}.log"

    def triggers_of(stream: Mapping[str, Any]) -> Triggers:
        try:
            return ask(json.dumps(stream))
        except PartsMissingError as e:
            raise SystemExit(f"the process of {source} has ended: …{log.read_text(errors='replace')[-3000:]}") from e

    with running_script(python, timed_streams.__file__, [source, ",".join(map(str, jars))], log) as ask:
        yield triggers_of


# -- one round


def scan_of(side: Side, options: Mapping[str, str], scan: Mapping[str, str], records: int) -> float:
    """Return the records a second of a scan: those of its triggers after the first, by the time of these triggers."""
    limit = str(records)
    found = side({"options": {**options, "maxOffsetsPerTrigger": limit}, "records": LARGE_TRIGGERS * records, **scan})
    warm = [trigger for trigger in found if trigger[0]][COLD["scan"] :]
    return sum(rows for rows, _ in warm) / sum(times["triggerExecution"] for _, times in warm) * 1000


def small_triggers(side: Side, options: Mapping[str, str], triggers: int) -> Figures:
    """Return the times of small triggers and of those without data, in ms. Those without data are short, so there the mean counts."""
    stream = {"options": {**options, "maxOffsetsPerTrigger": str(SMALL)}, "records": SMALL * triggers, "through": "columns"}
    found = side({**stream, "idle": IDLE_S})
    full = [times for rows, times in found if rows][COLD["records"] :]
    after = [times for rows, times in found if not rows][COLD["idle"] :]
    names = sorted({name for times in full for name in times})
    figures = {f"records {name}": statistics.median(times.get(name, 0) for times in full) for name in names}
    for name in ("triggerExecution", "latestOffset"):
        figures[f"idle {name}"] = statistics.mean(times.get(name, 0) for times in after)
    return figures


def starting_at(topic: str, offset: int) -> str:
    """Return `startingOffsets`: with numbers no source has an empty first batch."""
    return json.dumps({topic: {str(number): offset for number in range(PARTITIONS)}})


def figures_of(side: Side, bootstrap: str, topic: str, records: int, triggers: int, takes_schema: bool) -> Figures:
    """Return all figures of a side in one round."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    figures = Figures()
    for name, scan in SCANS.items():
        begin = {**options, "startingOffsets": starting_at(topic, 0)}
        figures[name] = scan_of(side, begin, scan if takes_schema else {"through": scan["through"]}, records)
    last = (LARGE_TRIGGERS * records - SMALL * triggers) // PARTITIONS
    return figures | small_triggers(side, {**options, "startingOffsets": starting_at(topic, last)}, triggers)


# -- all rounds


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return lower quartile, median and upper quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high


def rounds_of(measure: Mapping[str, Callable[[], Figures]], rounds: int) -> Iterator[dict[str, Figures]]:
    """Yield the figures of the sides, round by round. The sides take turns in being first. The first round is left out."""
    for number in range(rounds + 1):
        figures = {name: measure[name]() for name in (measure if number % 2 else reversed(measure))}
        if number:
            yield figures


def short(side: str, figures: Figures) -> str:
    """Return what a side has shown in one round."""
    rates = " ".join(f"{figures[name] / 1e6:.2f}" for name in SCANS)
    times = " ".join(f"{figures[name]:.1f}" for name in ("records triggerExecution", "idle triggerExecution"))
    return f"{side} {rates} M/s {times} ms"


def described(side: str, rounds: Sequence[Figures]) -> str:
    """Return a line with the medians of a side: its rates, and where the time of a small trigger goes."""
    figures = {name: statistics.median(figures.get(name, 0.0) for figures in rounds) for name in rounds[0]}
    rates = ", ".join(f"{name} {figures[name] / 1e6:.2f} M/s" for name in SCANS)
    small = ", ".join(f"{name.removeprefix('records ')} {ms:.0f}" for name, ms in figures.items() if name.startswith("records "))
    idle = ", ".join(f"{name.removeprefix('idle ')} {ms:.1f}" for name, ms in figures.items() if name.startswith("idle "))
    return f"     {side}: {rates}\n       ms of a trigger with 1,000 records: {small}\n       ms of a trigger without data: {idle}"


def run(kafka: KafkaHandle, records: int, triggers: int, rounds: int, directory: Path, alone: bool) -> int:
    """Make the topic and both sides, measure and print. Return the exit status."""
    topic = make_topic(kafka, json_records(LARGE_TRIGGERS * records), PARTITIONS)
    found: list[dict[str, Figures]] = []
    print(f"streams of {LARGE_TRIGGERS} triggers of {records:,} records of 100 B, local[2]: pyspark {pyspark.__version__}", end="")
    try:
        with ExitStack() as stack:
            sides: dict[str, Side] = {}
            try:
                python, jars, version = connector_parts(alone)
                sides["connector"] = stack.enter_context(a_side(python, "kafka", jars, directory))
                print(f", JVM connector of Spark {version}")
            except PartsMissingError as e:
                print(f"\n     no comparison: {e}")
            sides["kstream"] = stack.enter_context(a_side(Path(sys.executable), "kstream", [], directory))
            measure = {
                name: lambda name=name, side=side: figures_of(side, kafka.bootstrap, topic, records, triggers, name == "kstream")
                for name, side in sides.items()
            }
            for figures in rounds_of(measure, rounds):
                found.append(figures)
                print(f"     round {len(found)}: {', '.join(short(name, of) for name, of in figures.items())}", flush=True)
    finally:
        kafka.delete_topic(topic)
    for name in sides:
        print(described(name, [figures[name] for figures in found]))
    if "connector" not in sides:
        return 0
    pairs = [(figures["kstream"], figures["connector"]) for figures in found]
    lines = [bar.line(pairs) for bar in BARS]
    print("\n".join(line for _, line in lines))
    return 0 if all(is_met for is_met, _ in lines) else 1


def main() -> int:
    parser = parser_of(__doc__, records=300_000, triggers=13, rounds=7)
    add_bootstrap(parser)
    add_alone(parser)
    args = parser.parse_args()
    with running_kafka(args.bootstrap) as (kafka, directory):
        return run(kafka, args.records, args.triggers, args.rounds, directory, args.alone)


if __name__ == "__main__":
    sys.exit(main())
