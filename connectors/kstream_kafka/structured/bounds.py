"""Where a query begins and where a batch ends: positions of the options become offsets, by requests to the brokers."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection
from typing import TypeVar

from kstream.clock import Clock
from kstream.offsets.offset_range import Partition
from kstream.offsets.positions import Position
from kstream_kafka.client.ports import DriverClient
from kstream_kafka.client.renewing_client import renewing_driver_client
from kstream_kafka.errors import KafkaError, SourceOptionError
from kstream_kafka.planning.starting_offsets import OffsetResolver
from kstream_kafka.planning.subscription import Subscribed
from kstream_kafka.structured.option_kinds import LATE_STARTS
from kstream_kafka.structured.options import Bound, SourceOptions

logger = logging.getLogger("kstream.kafka")
Answer = TypeVar("Answer")
MakeClient = Callable[[SourceOptions], DriverClient]

PATIENCE_MS = 600_000
"""Milliseconds for which a query waits for brokers that are away, before it fails. Spark shows a query that waits as one that plans."""
PAUSE_MS = 1_000
"""Milliseconds between two tries."""


def driver_client(options: SourceOptions) -> DriverClient:
    """Create the client of a query. Sends no request; blocks for secrets and the first token."""
    return renewing_driver_client(options.params, options.retries)


def patiently(request: Callable[[], Answer], clock: Clock, parent: Callable[[], int] = os.getppid) -> Answer:
    """Make a request, and make it again every PAUSE_MS while brokers are away. Blocks up to PATIENCE_MS longer than the request.

    An error that leaves the planner ends the query. So an outage is waited out here. Spark ends the process when the query is stopped. If
    the driver was killed, nobody ends it: then its parent is another process, and the wait is over.

    Args:
        request: makes the request, as often as it is called.
        clock: the clock of the pauses and of the deadline.
        parent: returns the id of the parent process.

    Returns:
        The result of the request.

    Raises:
        KafkaError: the outage has lasted for PATIENCE_MS, the driver was killed meanwhile, or the error is no outage.
    """
    deadline, driver = clock.monotonic_ms() + PATIENCE_MS, parent()
    while True:
        try:
            return request()
        except KafkaError as e:
            if not e.outage or clock.monotonic_ms() >= deadline or parent() != driver:
                raise
            logger.warning("the query waits for brokers that are away, and asks again: %s", e)
            clock.wait(PAUSE_MS, threading.Event())


def partitions_of(client: DriverClient, topics: Subscribed) -> set[Partition]:
    """Return the partitions of a subscription that the cluster has. Blocks.

    Raises:
        SourceOptionError: a partition that `assign` names does not exist.
        KafkaError: an error of the client, such as UnknownTopicError.
    """
    known = client.partitions(topics)
    if missing := sorted(set(topics.fixed) - known):
        raise SourceOptionError("assign", f"names partitions that the cluster does not have: {_names(missing)}")
    return {p for p in known if topics.reads(p)}


def resolved(
    client: DriverClient, bound: Bound, known: Collection[Partition], now_ms: Callable[[], int], late_start: str = LATE_STARTS[1]
) -> dict[Partition, int]:
    """Return the offset of each partition. Blocks on the brokers.

    Args:
        client: the client of the query.
        bound: the positions.
        known: all partitions that the query reads.
        now_ms: the wall clock, in ms.
        late_start: what a time after all records of a partition means: one of LATE_STARTS.

    Raises:
        SourceOptionError: the positions do not name all partitions and no others, as Spark demands, or a start is too late.
        KafkaError: an error of the client.
    """
    check_names_all(bound, known)
    if late_start == LATE_STARTS[0]:
        check_not_late(client, bound, known)
    return OffsetResolver("latest", None, now_ms).resolve(client, {p: bound.positions.of(p) for p in known})


def check_names_all(bound: Bound, known: Collection[Partition]) -> None:
    """Check that offsets by partition name all partitions and no others. Pure.

    Raises:
        SourceOptionError: they do not.
    """
    each = bound.positions.each
    if not each:
        return
    if lacking := sorted(set(known) - each.keys()):
        raise SourceOptionError(bound.option, f"lacks {_names(lacking)}", "Name all partitions; in offsets −1 is latest, −2 is earliest.")
    if stray := sorted(each.keys() - set(known)):
        raise SourceOptionError(bound.option, f"names partitions that the query does not read: {_names(stray)}")


def check_not_late(client: DriverClient, bound: Bound, known: Collection[Partition]) -> None:
    """Check that each partition has a record of its starting time or later. Blocks if there are times: one request for each time.

    Raises:
        SourceOptionError: a partition has none.
        KafkaError: an error of the client.
    """
    at: dict[Partition, Position] = {p: position for p in known if (position := bound.positions.of(p)) is not None}
    for ms in sorted({position.value for position in at.values() if position.kind == "time"}):
        asked = [p for p, position in at.items() if position == Position("time", ms)]
        [found] = client.at_times([ms], asked)
        if late := sorted(p for p in asked if found[p] is None):
            hint = "startingOffsetsByTimestampStrategy=latest begins at the end of such a log."
            raise SourceOptionError(bound.option, f"is {ms}, and {_names(late)} has no record of that time or later", hint)


def _names(partitions: Collection[Partition], most: int = 5) -> str:
    """Return the partitions in one line; at most `most` of them are named."""
    names = [f"{topic}-{number}" for topic, number in partitions]
    return ", ".join(names[:most]) + (f" … ({len(names)} in all)" if len(names) > most else "")
