"""`kstream broker`: the embedded broker at a port that a job can name, for a first look. Needs neither Java, pyspark nor Docker."""

from __future__ import annotations

import errno
import os
import threading

import click

from kstream.cli.terminal import clear_errors, echo, fail
from kstream_kafka.demo.embedded_broker import MockCluster
from kstream_kafka.demo.port_forwarder import HOST, PortForwarder

PORT = 9092
"""The port of Kafka, which the pages of the docs name."""
LIMITS = (
    "Its records are in memory: the newest 5 MB of each partition, and none after its end. With a new broker a job needs a new checkpoint.",
    "A topic has 4 partitions, whatever is asked for. It has no settings, is not compacted, and cannot be deleted.",
    "Transactions do not hold: saveToKafka and format('kstream') do not write exactly once to it.",
    "It finds no offsets by time: a start such as '-2h' begins at the end of the log.",
)
"""What this broker cannot do, as far as a job of kstream would notice."""


@click.command("broker")
@click.option("--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True, help="The port on 127.0.0.1; 0 is any.")
def broker_command(port: int) -> None:
    """Serve a small Kafka on this machine until Ctrl-C, for a first look at a job without an installed Kafka.

    It is librdkafka's mock cluster, which `kstream demo` uses, too. Only programs of this machine reach it. Its records are in memory, and
    gone at its end. It prints what else a Kafka can do and it cannot.

    The exit code is 1 if the port cannot be opened.
    """
    try:
        with clear_errors():
            cluster = MockCluster()
        forwarder = _opened(port, int(cluster.bootstrap.rpartition(":")[2]))
        echo(f"a Kafka for a first look is at {HOST}:{forwarder.port} until Ctrl-C")
        for sentence in LIMITS:
            echo(f"  {sentence}")
        threading.Event().wait()
    except KeyboardInterrupt:  # as a person ends it: no error
        raise SystemExit(0) from None


def _opened(port: int, target: int) -> PortForwarder:
    """Open the port. End the program with one line if that is not possible."""
    try:
        return PortForwarder(port, target)
    except OSError as e:
        if e.errno == errno.EADDRINUSE:
            fail(f"port {port} of {HOST} is taken, perhaps by another Kafka: use that one, or give another --port, or --port 0 for any")
        fail(f"port {port} of {HOST} cannot be opened: {os.strerror(e.errno or 0)}. Give another --port, or --port 0 for any")
