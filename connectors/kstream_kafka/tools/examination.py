"""examine: whether a direct stream could read on, as `kstream doctor` shows it.

It asks what a driver and a worker ask, with their clients: metadata, the ends of the logs, a fetch at the end of a partition of each topic.
So a missing permission shows as it would show in the stream. Brokers do not tell the time, so their clocks are not compared.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from kstream.connectors import Finding
from kstream.errors import KStreamError
from kstream.offsets.offset_range import Partition
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams, small
from kstream_kafka.client.ports import DriverClient, FetchErrorKind, LogEnd
from kstream_kafka.errors import NotAuthorizedError
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.reader.range_consumer import KafkaRangeConsumer

FETCH_S = 10.0
"""Seconds to wait for the answers to the fetches."""
CORRECT = "Correct it in the kafkaParams of the job; parameters that the checkpoint does not store go to this command by --params-file."
RESET = "Its offsets mean other records now: `kstream offsets reset PATH --to earliest`, while no driver runs, or a new checkpoint."


def examine(connection: Mapping[str, Any], data: Mapping[str, Any]) -> list[Finding]:
    """Look at the brokers of a direct stream. Blocks for up to a few `default.api.timeout.ms`.

    Args:
        connection: the Kafka parameters.
        data: the newest plan data of the stream.

    Returns:
        A finding for brokers and topics; if they answer, for offsets, for the permission to read, and for the group if there is one.
    """
    plan = KafkaPlan.decode(data)
    try:
        params = KafkaParams.parse(connection)
        client = KafkaDriverClient(params)
    except KStreamError as e:
        return [Finding("brokers", "failed", str(e), CORRECT)]
    try:
        partitions = {(r.topic, r.partition) for r in plan.ranges}
        ids = client.topic_ids({topic for topic, _ in partitions})
        begins, ends = client.earliest(partitions), client.latest(partitions)
    except KStreamError as e:
        return [Finding("brokers", "failed", str(e), CORRECT)]
    else:
        found = [Finding("brokers", "ok", f"{params.bootstrap} answer"), judge_ids(plan.topic_ids, ids)]
        found += [judge_offsets(plan, begins, ends), _fetched(params, ends)]
        return found if params.group is None else [*found, _group(client, params.group, partitions)]
    finally:
        client.close()


def judge_ids(planned: Mapping[str, str], found: Mapping[str, str]) -> Finding:
    """Compare the topic ids of the plans with those of the brokers. A topic that the brokers give no id of passes. Pure."""
    other = [
        f"{topic} (its id was {planned[topic]}, is {found[topic]})"
        for topic in sorted(planned)
        if found.get(topic, planned[topic]) != planned[topic]
    ]
    if other:
        return Finding("topics", "failed", f"deleted and created again: {', '.join(other)}", RESET)
    return Finding("topics", "ok", "the topics of the plans" if planned else "the plans have no topic ids")


def judge_offsets(plan: KafkaPlan, begins: Mapping[Partition, LogEnd], ends: Mapping[Partition, LogEnd]) -> Finding:
    """Compare the next offsets of a stream with its logs: failed if a log begins after one, or ends before it. Pure.

    A partition of `plan.ahead` may have a shorter log.
    """
    gone, short = list[str](), list[str]()
    for r in sorted(plan.ranges, key=lambda r: (r.topic, r.partition)):
        at = r.topic, r.partition
        if r.untilOffset < begins[at].offset:
            gone.append(f"{r.topic}/{r.partition} begins at {begins[at].offset}, after the next offset {r.untilOffset}")
        elif r.untilOffset > ends[at].offset and at not in plan.ahead:
            short.append(f"{r.topic}/{r.partition} ends at {ends[at].offset}, before the next offset {r.untilOffset}")
    if short:
        return Finding("offsets", "failed", "; ".join([*short, *gone]), RESET)
    if gone:
        return Finding(
            "offsets",
            "failed",
            "; ".join(gone),
            "Records have expired unread. Keep them longer (retention.ms), and see `kstream ledger PATH`.",
        )
    return Finding("offsets", "ok", "each log has the next offset")


def _fetched(params: KafkaParams, ends: Mapping[Partition, LogEnd]) -> Finding:
    """Fetch at the end of one partition of each topic, as a worker does. Reads no record that is there now. Blocks up to FETCH_S."""
    chosen = dict(sorted(ends, reverse=True))
    try:
        consumer = KafkaRangeConsumer(small(params.executor()))
        try:
            consumer.assign([(topic, partition, ends[topic, partition].offset, None) for topic, partition in chosen.items()])
            missing = _unanswered(consumer, set(chosen))
        finally:
            consumer.close()
    except NotAuthorizedError as e:
        return Finding("read", "failed", str(e), "Add the ACL that this names: READ on every topic of the stream.")
    except KStreamError as e:
        return Finding("read", "failed", str(e), CORRECT)
    if missing:
        return Finding(
            "read",
            "warning",
            f"no answer to a fetch of {', '.join(sorted(missing))} in {FETCH_S:g} s",
            "Look at the leaders of its partitions.",
        )
    return Finding("read", "ok", "a fetch of each topic is answered")


def _unanswered(consumer: KafkaRangeConsumer, topics: set[str]) -> set[str]:
    """Wait for a record or an end of each topic, up to FETCH_S. Return the topics without one, of which none is left if all is well.

    Raises:
        NotAuthorizedError: this client may not read a topic.
        KafkaError: the brokers refuse this client.
    """
    deadline = time.monotonic() + FETCH_S
    while topics and time.monotonic() < deadline:
        for message in consumer.consume(100, 0.2):
            error = message.error()
            if error is None or consumer.classify_error(error) is FetchErrorKind.END_OF_PARTITION:
                topics.discard(message.topic())
    return topics


def _group(client: DriverClient, group: str, partitions: Collection[Partition]) -> Finding:
    """Ask for the offsets of the group. A warning if they cannot be read: only commits and starts at `committed` need them."""
    try:
        client.committed(group, partitions)
    except KStreamError as e:
        return Finding("group", "warning", str(e), "Only commitAsync, publishOffsets and a start at `committed` need it.")
    return Finding("group", "ok", f"the offsets of {group} can be read")
