"""`kstream dlq`: the letters of a dead-letter topic, and the way back. Needs neither Java nor pyspark."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from kstream.cli.exit_codes import ReadingCode
from kstream.cli.record_text import FORMATS, JSON, TEXT, as_data, lines_of
from kstream.cli.terminal import clear_errors, count, echo, table_console
from kstream.printable import printable
from kstream_kafka.planning.dead_letter import DeadLetter
from kstream_kafka.tools.dead_letter_reading import DeadLetterTopic, counts_by_kind
from kstream_kafka.tools.replay_position import ChosenExceptions
from kstream_kafka.tools.topic_options import connection_of, of_a_topic


@click.group("dlq")
def dlq_command() -> None:
    """Dead letters: count them, show them, put their records back into their topics.

    TOPIC is a dead-letter topic. Its brokers are those of a stream of --checkpoint, or of --bootstrap.
    """


@dlq_command.command("ls")
@of_a_topic
@click.option("--by-batch", is_flag=True, help="Count each batch by itself.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def ls_command(topic: str, by_batch: bool, as_json: bool, **options: Any) -> None:
    """Count the letters by topic of origin, exception and operator."""
    with clear_errors(code=ReadingCode.UNREADABLE), _opened(topic, **options) as letters:
        counted, others = counts_by_kind(letters.letters(), by_batch)
    names = ("topic", "exception", "operator", "batch")[: 4 if by_batch else 3]
    rows = [{**dict(zip(names, kind, strict=False)), "letters": n.letters, "records": len(n.places)} for kind, n in counted.items()]
    if as_json:
        echo(json.dumps({"topic": topic, "kinds": rows, "others": others}))
        return
    if not rows:
        echo(f"{topic} has no dead letters" + (f", but {count(others, 'other record')}" if others else ""))
        return
    table = Table("topic", "exception", "operator", *(["batch (ms)"] if by_batch else []), "letters", "records")
    for row in rows:
        table.add_row(*(escape(printable("" if value is None else str(value))) for value in row.values()))
    table_console().print(table)
    if others:
        echo(f"{count(others, 'other record')} of {topic} {'is' if others == 1 else 'are'} no dead letter")


@dlq_command.command("show")
@of_a_topic
@click.option("-n", "most", type=click.IntRange(min=1), default=5, show_default=True, help="The most letters.")
@click.option("--format", "form", type=click.Choice(FORMATS), default=TEXT, show_default=True, help="json: one object a line.")
@click.option("--stacktrace", is_flag=True, help="Print the stack traces, too.")
def show_command(topic: str, most: int, form: str, stacktrace: bool, **options: Any) -> None:
    """Print the first letters: each record as it was, its place of origin, and its error."""
    shown = 0
    with clear_errors(code=ReadingCode.UNREADABLE), _opened(topic, **options) as letters:
        for letter in letters.letters():
            if (dead := letter.dead) is None:
                continue
            record = replace(letter.record, headers=dead.headers)
            if form == JSON:
                echo(json.dumps({**as_data(record), "error": _error_data(dead)}))
            else:
                for line in [*lines_of(record, form), *_error_lines(dead, stacktrace)]:
                    echo(line)
            shown += 1
            if shown == most:
                break
    if not shown:
        echo(f"{topic} has no dead letters", err=True)


@dlq_command.command("replay")
@of_a_topic
@click.option("--exception", "only", metavar="NAME", multiple=True, help="Only letters with this exception, as `ls` names it. Repeatable.")
@click.option("--exclude-exception", "all_but", metavar="NAME", multiple=True, help="All but letters with this exception. Repeatable.")
@click.option("--dry-run", is_flag=True, help="Only count what would go back.")
def replay_command(topic: str, only: tuple[str, ...], all_but: tuple[str, ...], dry_run: bool, **options: Any) -> None:
    """Put the records back into their partitions of origin: key, value and headers as they were, without those of the error.

    Letters of one topic, partition and offset are one record. A consumer group remembers what went back, so a second run goes on after it.
    Run it when the job is mended: a record that fails again becomes a new letter. Letters that are left out by their exception wait for a
    later run.
    """
    if only and all_but:
        raise click.UsageError("give either --exception or --exclude-exception, not both")
    with clear_errors(), _opened(topic, **options) as letters:
        result = letters.put_back(write=not dry_run, chosen=ChosenExceptions(only, all_but))
        group = letters.group
    would = "would go" if dry_run else "went"
    into = f" into {', '.join(sorted(map(printable, result.topics)))}" if result.topics else ""
    echo(f"{count(result.records, 'record')} of {topic} {would} back{into}")
    notes = (
        (result.repeats, "repeat", "of these did not go back"),
        (result.before, "letter", f"went back before, as the group {group} remembers"),
        (result.not_chosen, "letter", "with other exceptions did not go back" if only else "with these exceptions did not go back"),
        (result.others, "record", "of the topic are no dead letters"),
        (result.without_headers, "letter", "without all headers of the record did not go back"),
    )
    for number, what, said in notes:
        if number:
            echo(f"{count(number, what)} {said}")


@contextmanager
def _opened(
    topic: str, checkpoint: str | None, bootstrap: str | None, params: tuple[str, ...], params_file: str | None
) -> Generator[DeadLetterTopic]:
    """Open a dead-letter topic, and close its client afterwards. KStreamError if its brokers are not known or do not answer."""
    opened = DeadLetterTopic(connection_of(checkpoint, bootstrap, params, params_file), topic)
    try:
        yield opened
    finally:
        opened.close()


def _error_lines(dead: DeadLetter, with_stacktrace: bool) -> list[str]:
    """Return the lines about the origin and the error of a letter, and an empty one at the end."""
    batch = "" if dead.batch_ms is None else f", batch {dead.batch_ms} ms"
    lines = [f"  origin  {printable(dead.topic)}-{dead.partition}@{dead.offset}{batch}"]
    lines.append(f"  error   {printable(dead.exception)} in {printable(dead.operator)}: {printable(dead.message)}")
    if with_stacktrace:
        lines += [f"          {printable(line)}" for line in dead.stacktrace.splitlines()]
    return [*lines, ""]


def _error_data(dead: DeadLetter) -> dict[str, Any]:
    """Return the origin and the error of a letter as JSON has them."""
    return {
        "topic": dead.topic,
        "partition": dead.partition,
        "offset": dead.offset,
        "timestamp": dead.timestamp,
        "batch": dead.batch_ms,
        "operator": dead.operator,
        "exception": dead.exception,
        "message": dead.message,
        "stacktrace": dead.stacktrace,
    }
