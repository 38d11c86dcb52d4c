"""`kstream offsets import`: the offsets of a query of Structured Streaming become those of a stream. Needs neither Java nor pyspark,
unless a checkpoint is on HDFS."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click
from click.core import ParameterSource

from kstream.cli.inputs import Connections, connection_options, open_existing
from kstream.cli.offsets import dry_run_option, reset_streams, stream_option, take_over_option, topic_option
from kstream.cli.structured_streaming import Carried, carried_offsets
from kstream.cli.terminal import clear_errors, count, echo, fail
from kstream.errors import ConfigurationError
from kstream.offsets.topic_offsets import TopicOffsets
from kstream.spark.checkpoint_store import open_checkpoint

AGAIN, SKIP = "again", "skip"
_OF_A_CHECKPOINT = {
    "stream": "--stream",
    "dry_run": "--dry-run",
    "take_over": "--take-over",
    "bootstrap": "--bootstrap",
    "params": "--param",
    "params_file": "--params-file",
}
"""The options that have a meaning only with PATH, by parameter."""


@click.command("import")
@click.argument("path", required=False)
@click.option("--from", "query", required=True, metavar="CHECKPOINT", help="The checkpointLocation of the query; any store of checkpoints.")
@click.option("--source", metavar="N", help="The number or the name of its Kafka source, if it has several sources.")
@click.option(
    "--uncommitted",
    type=click.Choice((AGAIN, SKIP)),
    default=AGAIN,
    show_default=True,
    help="What becomes of a batch that has begun and is not committed.",
)
@click.option("--out", metavar="FILE", help="Write the offsets into this new file, as JSON.")
@topic_option
@stream_option
@dry_run_option
@take_over_option
@connection_options
def import_command(
    path: str | None,
    query: str,
    source: str | None,
    uncommitted: str,
    out: str | None,
    topics: tuple[str, ...],
    stream: int | None,
    dry_run: bool,
    take_over: bool,
    bootstrap: str | None,
    params: tuple[str, ...],
    params_file: str | None,
) -> None:
    """Carry the offsets of a Structured Streaming query over: those after its last committed batch.

    With PATH, a checkpoint of kstream, they become the next offsets of its stream, as with `kstream offsets reset`. Without PATH they are
    printed, or written to --out, in the form that `--to FILE` of `reset` and `fromOffsets` take. Nothing of the query is changed: stop it
    first.

    A batch that has begun and is not committed was perhaps processed. Its records are read again, unless `--uncommitted skip` is given.
    """
    if path is None:
        _refuse_options_of_a_checkpoint(click.get_current_context())
    with clear_errors():
        carried = carried_offsets(open_checkpoint(query), source, uncommitted == SKIP)
        offsets = _of_topics(carried.offsets, topics, query)
        with _new_file(None if out is None or dry_run else Path(out), offsets):
            for sentence in sentences(carried, query):
                echo(sentence, err=path is None and out is None)
            if path is not None:
                store = open_existing(path)
                connections = Connections(store, bootstrap, params, params_file)
                reset_streams(store, offsets, tuple(offsets), stream, connections, dry_run, take_over)
            elif out is None:
                echo(json.dumps(offsets))


def sentences(carried: Carried, query: str) -> list[str]:
    """Return what is known about the batches of the query, and where its successor begins. Pure."""
    topics = ", ".join(f"{topic} ({count(len(numbers), 'partition')})" for topic, numbers in carried.offsets.items())
    if carried.committed is None:
        said = [f"no batch of {query} is committed; source {carried.source} reads {topics}"]
    else:
        said = [f"batch {carried.committed} is the last one of {query} that is committed; source {carried.source} reads {topics}"]
    if carried.begun is not None:
        perhaps = f"batch {carried.begun} has begun and is not committed: perhaps it was processed"
        said.append(f"{perhaps}. {'Its records are left out' if carried.skips else 'Its records are read again (--uncommitted skip: not)'}")
    return said


def _of_topics(offsets: TopicOffsets, topics: tuple[str, ...], query: str) -> TopicOffsets:
    """Return the offsets of the topics; of all without any. ConfigurationError for a topic that the query does not read."""
    if stray := sorted(set(topics) - offsets.keys()):
        text = f"{query} does not read {', '.join(map(repr, stray))}; it reads {', '.join(offsets)}"
        raise ConfigurationError(text, key="topic", value=stray)
    return {topic: numbers for topic, numbers in offsets.items() if not topics or topic in topics}


def _refuse_options_of_a_checkpoint(context: click.Context) -> None:
    """End the program with a usage error if an option is given that has a meaning only with PATH."""
    given = [option for name, option in _OF_A_CHECKPOINT.items() if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        raise click.UsageError(f"{', '.join(given)} {'needs' if len(given) == 1 else 'need'} PATH, the checkpoint whose offsets change")


@contextmanager
def _new_file(path: Path | None, offsets: TopicOffsets) -> Generator[None]:
    """Write a new file, and remove it if the body fails: then its offsets are not those of the checkpoint.

    Args:
        path: the file; None for none.
        offsets: its content.
    """
    if path is None:
        yield
        return
    _write(path, offsets)
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _write(path: Path, offsets: TopicOffsets) -> None:
    """Write a new file. End the program if there is one, or if it cannot be written."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps(offsets, indent=2) + "\n")
    except OSError as e:
        fail(f"{path} cannot be written: {e.strerror}")
