"""`kstream replay`: a second run of past batches, with their stored ranges."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kstream.batch_time import Time
from kstream.cli.cluster_start import ClusterStart
from kstream.cli.inputs import ranges_of
from kstream.cli.job import load_setup, ship
from kstream.cli.submit_options import submit_options
from kstream.cli.terminal import clear_errors, count, echo, fail, one_line, parse_moment, require_pyspark
from kstream.console import log
from kstream.spark.checkpoint_store import open_checkpoint
from kstream.spark.submit_args import SubmitOptions

if TYPE_CHECKING:
    from kstream.context.replay import ReplayedBatch


@click.command("replay")
@click.argument("job", metavar="MODULE:SETUP")
@click.option("--checkpoint", "path", required=True, metavar="PATH", help="The checkpoint of the stream.")
@click.option("--from", "begin", required=True, metavar="TIME", help="First batch time: ms, an ISO time, -2h or now.")
@click.option("--to", "end", default="now", metavar="TIME", help="Last batch time, itself included; default now.")
@click.option("--sink", type=click.Choice(["shadow", "same"]), required=True, help="shadow: written to --out; same: the job's own outputs.")
@click.option("--out", metavar="DIR", help="With --sink shadow: the directory for the elements, as lines of text.")
@submit_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a batch instead of a sentence.")
@click.option("--verbose", is_flag=True, help="Show tracebacks and the messages of client libraries, such as Kafka's.")
def replay_command(
    job: str,
    path: str,
    begin: str,
    end: str,
    sink: str,
    out: str | None,
    master: str | None,
    py_files: str | None,
    archives: str | None,
    files: str | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Run batches of the past again, each with the ranges it had, and report where their input has changed since.

    The stream does not change: no plan is written, no offset committed; its driver may be running. With --sink same the output functions
    of the job run again with the old batch times. With --sink shadow they do not run: their input is written to
    DIR/output-<number>/<batch time>/.

    Exit code 1 if a batch failed, or if its input has changed: retention or compaction removed records, or a topic was recreated.
    """
    if (sink == "shadow") != (out is not None):
        fail("--sink shadow and --out DIR belong together; --sink same writes where the job writes")
    log(verbose=verbose)
    now = round(time.time() * 1000)
    with clear_errors(verbose):
        require_pyspark()
        submit = SubmitOptions.of(master, py_files, archives, files)
        submit.check()
        first, last = Time(parse_moment(begin, now)), Time(parse_moment(end, now))
        different = total = 0
        for batch in _replayed(job, path, first, last, out, submit):
            total += 1
            different += not batch.same
            echo(json.dumps(as_data(batch)) if as_json else sentence(batch))
    if different:
        fail(f"{different} of {count(total, 'batch')} could not be replayed with the same result")
    if not as_json:
        echo(f"{count(total, 'batch')} replayed; their input is unchanged")


def _replayed(job: str, path: str, first: Time, last: Time, out: str | None, submit: SubmitOptions) -> Iterator[ReplayedBatch]:
    """Run the batches from `first` to `last` again, and yield each result. Starts a SparkContext, and stops it at the end. Blocks.

    Args:
        job: the function that makes the context, `module:name` or `file.py:name`.
        path: the checkpoint.
        first: the first batch time.
        last: the last batch time, included.
        out: the directory for the elements; None runs the job's own outputs.
        submit: the options for Spark.
    """
    from kstream.context import StreamingContext
    from kstream.context.factories import services_of_context
    from kstream.context.replay import Replayer, text_sink
    from kstream.spark.job_environment import SparkJobEnvironment

    cluster = ClusterStart.prepare(submit)
    setup = load_setup(job)
    context = StreamingContext.getOrCreate(path, setup)
    try:
        ship(setup, context, submit.modules)
        cluster.check(context, path)
        graph = services_of_context(context).graph
        environment = SparkJobEnvironment(context.sparkContext, graph.batch_duration)
        store = open_checkpoint(path)  # not before there is Spark: on HDFS the store calls its JVM
        replayer = Replayer(graph, environment, store, None if out is None else text_sink(out))
        yield from replayer.run(first, last)
    finally:
        context.sparkContext.stop()  # the streaming context was never started, so there is nothing else to stop
        sys.stdout.flush()


def as_data(batch: ReplayedBatch) -> dict[str, Any]:
    """Return a batch as JSON values; times in ms."""
    return {
        "batch": batch.time.milliseconds,
        "records": sum(batch.plan.num_records.values()),
        "ended_then": batch.ended_then,
        "same": batch.same,
        "changes": [{"stream": c.stream, "part": c.part, "then": c.then, "now": c.now} for c in batch.changes],
        "lost": [{"stream": stream, **entry} for stream, lost in sorted(batch.lost.items()) for entry in lost],
        "error": None if batch.error is None else one_line(batch.error),
    }


def sentence(batch: ReplayedBatch) -> str:
    """Return the line about a batch for people."""
    ranges = {number: ranges_of(data) or [] for number, data in batch.plan.inputs.items()}
    words = [f"batch {batch.time.milliseconds} ms: {count(sum(batch.plan.num_records.values()), 'offset')}"]
    if not batch.ended_then:
        words.append("had not ended then")
    if batch.error is not None:
        words.append(f"failed: {one_line(batch.error)}")
    for change in batch.changes:
        place = f"stream {change.stream} part {change.part}"
        if change.part < len(ranges.get(change.stream, ())):
            topic, partition, begin, until = ranges[change.stream][change.part]
            place = f"{topic}/{partition} [{begin}, {until})"
        words.append(f"{place} held {change.then} records then and {change.now} now")
    for _, lost in sorted(batch.lost.items()):
        for entry in lost:
            end = "…" if entry.get("until") is None else entry["until"]
            words.append(f"{entry.get('topic')}/{entry.get('partition')} [{entry.get('from')}, {end}) is gone: {entry.get('cause')}")
    return "; ".join(words) + ("" if len(words) > 1 else ", as then")
