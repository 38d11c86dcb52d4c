"""`kstream tail`: the records of a topic as they come. Needs neither Java nor pyspark."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from kstream.cli.exit_codes import ReadingCode
from kstream.cli.record_text import FORMATS, JSON, MOST_BYTES, lines_of, value_line
from kstream.cli.terminal import clear_errors, echo
from kstream.connectors import LogRecord
from kstream.errors import KStreamError
from kstream.offsets.offset_range import Partition
from kstream.offsets.positions import Position
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams, bulk
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.planning.starting_offsets import OffsetResolver
from kstream_kafka.planning.subscription import Topics
from kstream_kafka.reader.range_consumer import KafkaRangeConsumer
from kstream_kafka.tools.log_tail import LogTail
from kstream_kafka.tools.topic_options import connection_of, impatient, of_a_topic

VALUE = "value"
LATEST, EARLIEST = "latest", "earliest"
LOOK_S = 30.0
"""Seconds between two looks for new partitions."""
TROUBLE_S = 2.0
"""Seconds between two looks while the client reports trouble."""
PATIENT = {"fetch.wait.max.ms": 500}
"""A broker answers as soon as it has a record. Without one it may wait: a tail that waits for hours need not ask all the time."""


@click.command("tail")
@of_a_topic
@click.option(
    "--from",
    "begin",
    metavar="POSITION",
    help="earliest, latest, -10 (the last 10 offsets of each partition), -2h or an ISO time. Default: latest; with --until-end earliest.",
)
@click.option("-n", "--max", "most", type=click.IntRange(min=1), help="End after so many records.")
@click.option("--until-end", is_flag=True, help="End where the log of each partition ends now.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each record; the same as --format json.")
@click.option(
    "--format", "form", type=click.Choice((VALUE, *FORMATS)), default=VALUE, show_default=True, help="value: only the value, in one line."
)
@click.option(
    "--max-bytes",
    type=click.IntRange(min=0),
    help=f"Cut keys, values and headers that are longer; 0: never. Default: {MOST_BYTES} in text and hex, else never.",
)
def tail_command(
    topic: str, begin: str | None, most: int | None, until_end: bool, as_json: bool, form: str, max_bytes: int | None, **brokers: Any
) -> None:
    """Print the records of TOPIC as they come. No consumer group is joined and nothing is committed.

    Characters that a terminal may obey are printed as escapes; JSON is exact. New partitions are read from their beginning. While no
    broker answers, the command says so and waits. The brokers are those of a stream of --checkpoint, or of --bootstrap.

    Records of transactions that did not commit are shown, too. With --param isolation.level=read_committed they are left out.

    The exit code is 3 if the topic cannot be read.
    """
    with clear_errors(code=ReadingCode.UNREADABLE), _ended_by_ctrl_c():
        position = _position(begin or (EARLIEST if until_end else LATEST))
        params = KafkaParams.parse(impatient(connection_of(**brokers)))
        client = KafkaDriverClient(params)
        consumer: KafkaRangeConsumer | None = None
        try:
            partitions = client.partitions(Topics((topic,)))
            ends = {p: end.offset for p, end in client.latest(partitions).items()} if until_end else None
            begins = OffsetResolver("error", None, _now_ms).resolve(client, dict.fromkeys(partitions, position))
            consumer = KafkaRangeConsumer({**bulk(params.executor()), **PATIENT})
            tail = LogTail(consumer, begins, ends, _print_notice)
            _print(tail, Brokers(client, topic), JSON if as_json else form, most, max_bytes)
        finally:
            client.close()
            if consumer is not None:
                consumer.close()


@contextmanager
def _ended_by_ctrl_c() -> Generator[None, None, None]:
    """Let the system end this process at once on Ctrl-C, whatever it is doing: there is no group to leave, and no offset to store.

    An exception in its place would wait for the client library, or be lost in one of its callbacks.
    """
    former = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def _position(text: str) -> Position:
    """Return the position that `--from` names. KafkaConfigError for one that means no place in every partition."""
    position = Position.parse(text, "--from")
    if position.kind == "offset":
        hint = f"Give -{position.value} for the last {position.value} offsets of each partition; `kstream peek --offset` shows one."
        raise KafkaConfigError("--from", f"is the one offset {position.value} for all partitions", hint)
    if position.kind == "committed":
        raise KafkaConfigError("--from", "is 'committed', and no group is read", "Give earliest, latest, -10, -2h or an ISO time.")
    return position


def _now_ms() -> int:
    """Return the machine's time in ms since the epoch."""
    return round(time.time() * 1000)


def _print_notice(sentence: str) -> None:
    """Print a sentence about the reading on standard error, among the records."""
    echo(f"kstream: {sentence}", err=True)


class Brokers:
    """Looks at the brokers from time to time: for new partitions, and whether they answer. One thread."""

    def __init__(self, client: KafkaDriverClient, topic: str) -> None:
        """
        Args:
            client: asks the brokers.
            topic: the topic that is read.
        """
        self._client = client
        self._topic = topic
        self._trouble = ""
        self._away = False
        self._last_look = time.monotonic()

    def look(self, tail: LogTail) -> None:
        """Ask the brokers for new partitions if it is time, and say on standard error when they are away and back. Blocks if it asks.

        It is time every LOOK_S seconds, and every TROUBLE_S while the brokers are away or the tail has new trouble.

        Args:
            tail: reads new partitions from now on.

        Raises:
            KafkaError: the topic is gone, or the brokers refuse this client.
        """
        wait = TROUBLE_S if self._away or tail.trouble != self._trouble else LOOK_S
        if time.monotonic() - self._last_look < wait:
            return
        self._trouble = tail.trouble
        try:
            fresh = self._client.partitions(Topics((self._topic,))) - tail.partitions
            begins: Mapping[Partition, int] = {p: end.offset for p, end in self._client.earliest(fresh).items()}
        except KStreamError as e:
            if not e.outage:
                raise
            if not self._away:
                _print_notice(f"{e} Waiting for them.")
            self._away = True
        else:
            if begins:
                tail.add(begins)
            if self._away:
                _print_notice("the brokers answer again")
            self._away = False
        self._last_look = time.monotonic()


# -- output


def _print(tail: LogTail, brokers: Brokers, form: str, most: int | None, max_bytes: int | None) -> None:
    """Print records until the end, the most records, or a closed standard output. Blocks.

    Args:
        tail: the records.
        brokers: looked at between the records.
        form: VALUE, or one of FORMATS.
        most: the most records; None for all.
        max_bytes: the most bytes of a part of a record, as of `lines_of`.
    """
    left = most
    try:
        for records in tail.answers():
            shown = records if left is None else records[:left]
            if shown:
                echo("\n".join(_text(record, form, max_bytes) for record in shown))
            if left is not None and not (left := left - len(shown)):
                return
            if _reader_is_gone():
                return
            brokers.look(tail)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at its end


def _text(record: LogRecord, form: str, max_bytes: int | None) -> str:
    return value_line(record, max_bytes) if form == VALUE else "\n".join(lines_of(record, form, max_bytes))


def _reader_is_gone() -> bool:
    """Return whether standard output is a pipe that nobody reads. Without it `tail | head -3` would wait for a fourth record."""
    if not hasattr(select, "poll"):
        return False
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    except (OSError, ValueError):  # no file behind it, as in a test
        return False
