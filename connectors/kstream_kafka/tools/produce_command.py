"""`kstream produce`: each line of standard input becomes a record of a topic. Needs neither Java nor pyspark."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, BinaryIO

import click

from kstream.cli.terminal import clear_errors, count, echo, fail
from kstream.errors import ConfigurationError
from kstream.nearest_name import did_you_mean
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.record_producer import RecordProducer
from kstream_kafka.errors import UnknownTopicError
from kstream_kafka.planning.subscription import Topics
from kstream_kafka.tools.line_production import LineForm, LineProduction, stored_sentence, trouble_sentence
from kstream_kafka.tools.topic_options import connection_of, impatient, of_a_topic

AFTER_INTERRUPT_S = 3.0
"""Seconds in which records that are on their way may still be acknowledged after Ctrl-C."""
BATCH_BYTES = 1_000_000
"""The largest batch, which is librdkafka's default."""
ONE_REQUEST_AT_A_TIME = {"max.in.flight": 1}
"""On a young topic a leader may refuse one request and take the next. The broker would take the first, sent again, for a duplicate."""


@click.command("produce")
@of_a_topic
@click.option("--key-separator", metavar="TEXT", help=r"What ends the key in a line, for example ':' or '\t'. Without it there is no key.")
@click.option("--partition", type=click.IntRange(min=0), help="The partition of all records. Default: that of the key.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of each record; may be repeated.")
@click.option("--partitions", type=click.IntRange(min=1), help="Create the topic with so many partitions if it does not exist.")
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=15, show_default=True, help="Seconds to wait for the acknowledgement of a record."
)
def produce_command(
    topic: str,
    key_separator: str | None,
    partition: int | None,
    headers: tuple[str, ...],
    partitions: int | None,
    timeout: float,
    **brokers: Any,
) -> None:
    """Write each line of standard input as a record to TOPIC, and wait until all replicas have it.

    The producer is idempotent. At the end one sentence says how many records are stored, and where. A record that is refused is named with
    the number of its line. The line feed is no part of the record; every other byte is. The brokers are those of a stream of
    --checkpoint, or of --bootstrap.

    The exit code is 1 if a record is not stored.
    """
    form = LineForm(_separator(key_separator), tuple(map(_header, headers)), partition)
    with clear_errors():
        params = KafkaParams.parse(impatient(connection_of(**brokers)))
        settings = {**params.producer(), **ONE_REQUEST_AT_A_TIME, "message.timeout.ms": round(timeout * 1000)}
        settings.update(_prepare(params, topic, form, partitions))
        production = LineProduction(RecordProducer(settings), topic, form)
    with _Interrupt() as interrupt:
        try:
            production.send(interrupt.lines_of(sys.stdin.buffer))
            production.wait(2 * timeout, lambda: interrupt.signal is not None)
            if interrupt.signal is not None:
                production.wait(AFTER_INTERRUPT_S)
        except KeyboardInterrupt:  # a second one
            pass
    answers = production.answers
    echo(stored_sentence(topic, answers))
    trouble = trouble_sentence(answers, interrupt.signal is not None)
    if interrupt.signal is not None:
        ended = f"interrupted after {count(answers.read, 'line')}: {count(answers.acknowledged, 'record')} acknowledged"
        fail(". ".join(filter(None, (ended, trouble))), 128 + interrupt.signal)
    if trouble:
        fail(trouble)


def _separator(text: str | None) -> bytes | None:
    r"""Return the bytes of a key separator, in which `\t` is a tab; None for None. BadParameter for an empty text."""
    if text == "":
        raise click.BadParameter("it is empty", param_hint="--key-separator")
    return None if text is None else text.replace("\\t", "\t").encode()


def _header(text: str) -> tuple[str, bytes]:
    """Return name and value of a header, of the text NAME=VALUE. BadParameter for another text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter("give NAME=VALUE", param_hint="--header")
    return name, value.encode()


def _prepare(params: KafkaParams, topic: str, form: LineForm, partitions: int | None) -> dict[str, int]:
    """Look for the topic, or create it, and wait until its leaders answer. Says on standard error what is new or unlike. Blocks.

    Args:
        params: the Kafka parameters.
        topic: the topic.
        form: the form of the records, which may name a partition.
        partitions: the partitions of a new topic; None to create none.

    Returns:
        Producer properties: a batch is no larger than the topic's limit, because the brokers refuse a larger one with all of its records.

    Raises:
        ConfigurationError: the topic does not exist and is not to be created, or has no such partition.
        KafkaError: the brokers do not answer, or refuse this client.
    """
    client = KafkaDriverClient(params)
    try:
        is_new = partitions is not None and client.create_topic(topic, partitions)
        known = client.partitions(Topics((topic,)))
        client.earliest(known)
        limit = client.max_message_bytes(topic)
    except UnknownTopicError as e:
        near = f" {did_you_mean(e.facts['near'])}" if e.facts["near"] else ""
        text = f"Kafka at {params.bootstrap} has no topic {topic!r}.{near} --partitions N creates it with N partitions"
        raise ConfigurationError(text, key="topic", value=topic) from e
    finally:
        client.close()
    if form.partition is not None and (topic, form.partition) not in known:
        text = f"{topic} has no partition {form.partition}: it has {count(len(known), 'partition')}, from 0 on"
        raise ConfigurationError(text, key="partition", value=form.partition)
    if is_new:
        but = "" if partitions == len(known) else f", and not with {partitions}: this broker gives each topic as many"
        echo(f"created {topic} with {count(len(known), 'partition')}{but}", err=True)
    elif partitions not in (None, len(known)):
        echo(f"{topic} exists, with {count(len(known), 'partition')}", err=True)
    return {} if limit is None else {"batch.size": min(limit, BATCH_BYTES)}


class _Interrupt:
    """SIGINT and SIGTERM while lines are sent: they end the wait for a line at once, and are noted at any other moment.

    So no acknowledgement is lost from the count. A second signal raises KeyboardInterrupt wherever the program is.

    Attributes:
        signal: the number of the signal that has come; None for none.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._reading = False

    def __enter__(self) -> _Interrupt:
        self._former = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def lines_of(self, stream: BinaryIO) -> Iterator[bytes]:
        """Yield the lines of a stream until it ends, or a signal comes. Blocks on the stream."""
        while self.signal is None:
            try:
                self._reading = True
                line = stream.readline()
            except KeyboardInterrupt:
                return
            finally:
                self._reading = False
            if not line:
                return
            yield line

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Note the signal. KeyboardInterrupt if it is the second one, or if a line is awaited. Called in the main thread, at any moment."""
        again, self.signal = self.signal is not None, number
        if again or self._reading:
            raise KeyboardInterrupt
