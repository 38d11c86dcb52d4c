"""`kstream demo`: the options, and the report."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

import click

from kstream.cli.terminal import clear_errors, compact, echo, fail, require_pyspark
from kstream.offsets.offset_range import PlannedRange
from kstream_kafka.demo.page import Page
from kstream_kafka.demo.proof import ProofResult
from kstream_kafka.demo.stage import Script, Stage


@click.command("demo")
@click.option("--batches", type=click.IntRange(min=6), default=16, show_default=True, help="Batches planned before the feed stops.")
@click.option("--interval", type=click.FloatRange(min=0.2), default=1.0, show_default=True, help="Seconds between batches.")
@click.option("--rate", type=click.IntRange(40, 2000), default=400, show_default=True, help="Orders a second.")
@click.option("--seed", type=int, default=1, show_default=True, help="The seed of the orders.")
@click.option("--page", is_flag=True, help="Open the page of the driver in a browser. In a terminal it stays until Ctrl-C.")
def demo_command(batches: int, interval: float, rate: int, seed: int, page: bool) -> None:
    """Kill the driver of a stream in the middle of a batch, and prove that every order was counted exactly once.

    Starts a Kafka broker, a feed of orders and a Spark driver on this machine, kills the driver and starts it again. Removes everything
    at the end. Exit code 0 only if the proof holds.
    """
    began = time.monotonic()
    interval_ms = round(interval * 1000)
    script = Script(batches, interval_ms, 5 * interval_ms, rate, seed)
    shown = Page()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    with clear_errors():
        require_pyspark()
        from kstream.spark.java import ensure_java

        ensure_java()
        with Stage(script, shown, opens=page) as stage:
            verdict = stage.play()
            _tell(verdict, report(verdict, stage), time.monotonic() - began)
            if page and sys.stdin.isatty():
                shown.keep(stage.checkpoint)


def _tell(verdict: ProofResult, lines: Sequence[str], seconds: float) -> None:
    """Print the report. End the program if the proof does not hold."""
    for line in lines:
        echo(line)
    if not verdict.proved:
        fail("not proved: " + "; ".join(verdict.failures))
    echo(f"PROVED: every order was counted exactly once ({seconds:.0f} s)")


def report(verdict: ProofResult, stage: Stage) -> list[str]:
    """Return the result of the demo as lines of text."""
    lines = [
        f"{verdict.acknowledged:,} orders acknowledged by Kafka, {verdict.counted:,} counted: missing {len(verdict.missing)}, "
        f"twice {len(verdict.twice)}, changed {len(verdict.changed)}",
        f"re-run, with the same ranges both times: {len(verdict.re_run)} planned and not done when driver 1 was killed",
    ]
    for batch, ranges in sorted(verdict.re_run.items()):
        again = "  (its orders were in the sink already)" if batch in stage.written else ""
        lines.append(f"  {stage.text(batch)}  {short_ranges(ranges)}{again}")
    made_up = stage.journal.made_up(set(stage.pending))
    lines.append(f"made up for the downtime of {stage.downtime:.1f} s: {len(made_up)}")
    for one in made_up:
        lines.append(f"  {stage.text(one.batch)}  {one.num_records:,} orders  {short_ranges(one.ranges)}")
    lines.append(f"{verdict.windows} window totals compared, each with the orders of its batches")
    return lines


def short_ranges(ranges: Sequence[PlannedRange]) -> str:
    """Return the ranges of one topic without its name: `0 [5, 10) 1 [7, 9)`."""
    return compact([PlannedRange("", *r[1:]) for r in ranges]).replace("/", "")


def _leave(signum: int, frame: FrameType | None) -> None:
    """End the program by an exception, so that all contexts are left. Called in the main thread, as a signal handler."""
    raise SystemExit(128 + signum)
