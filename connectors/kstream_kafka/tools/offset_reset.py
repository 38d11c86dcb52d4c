"""New offsets for a stream that does not run: the functions behind `kstream offsets reset` and `rewind`.

The functions take plan data and return plan data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kstream.connectors import OffsetChange, ResetResult
from kstream.offsets.offset_range import LostRange, OffsetRange, Partition
from kstream.offsets.positions import Position
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import DriverClient
from kstream_kafka.errors import KafkaConfigError, PartitionRevokedError
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.planning.starting_offsets import OffsetResolver
from kstream_kafka.planning.subscription import Topics

TO = "--to"


def empty_plan_at(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return plan data that reads nothing and ends at the offsets where `data` ends. Pure."""
    plan = KafkaPlan.decode(data)
    return _empty_plan(plan, plan.until_offsets, plan.until_epochs, plan.topic_ids).encode()


def reset_offsets(
    connection: Mapping[str, Any],
    data: Mapping[str, Any],
    to: Any,
    topics: Collection[str] = (),
    make_client: Callable[[KafkaParams], DriverClient] | None = None,
) -> ResetResult:
    """Return the plan data by which a stream goes on at other offsets, which the caller stores. Asks the brokers. Blocks.

    Of a recreated topic all partitions that exist now move, also those that the stream did not read.

    Args:
        connection: the Kafka parameters.
        data: the newest plan of the stream.
        to: one position for all partitions, or `{"topic": {"0": position}}`.
        topics: the topics to move; if empty, those that `to` names, or else all.
        make_client: makes the client; by default the client of drivers.

    Raises:
        KafkaConfigError: `to` cannot be understood, names partitions that the stream does not read, or gives an offset outside of the log.
        PartitionRevokedError: the stream reads a partition that no longer exists.
        KafkaError: the brokers do not answer, or a topic does not exist.
    """
    plan, params = KafkaPlan.decode(data), KafkaParams.parse(connection)
    each = _positions_by_partition(to) if isinstance(to, Mapping) else {}
    everywhere = None if each else _one_position(to)
    wanted = _wanted_topics(plan, topics or {topic for topic, _ in each})
    client = (make_client or _driver_client)(params)
    try:
        ids = client.topic_ids(wanted)
        recreated = _recreated(plan, ids)
        movable = _movable_partitions(plan, client.partitions(Topics(tuple(sorted(wanted)))), wanted, recreated)
        positions = _checked_positions(each, movable, recreated) if each else dict.fromkeys(movable, everywhere)
        begin, end = client.earliest(positions), client.latest(positions)
        offsets = OffsetResolver("error", params.group, lambda: round(time.time() * 1000)).resolve(client, positions)
    finally:
        client.close()
    _require_inside(offsets, {p: (begin[p].offset, end[p].offset) for p in offsets})
    epochs = {p: end[p].leader_epoch if at == end[p].offset else None for p, at in offsets.items()}
    return _moved(plan, offsets, epochs, ids)


def rewound_offsets(data: Mapping[str, Any], then: Mapping[str, Any], topics: Collection[str] = ()) -> ResetResult:
    """Return the plan data by which a stream goes back to the beginning of an earlier plan. Pure.

    Partitions of that plan that the stream reads no more stay away.

    Args:
        data: the newest plan of the stream.
        then: the earlier plan.
        topics: the topics to move; empty for all.

    Raises:
        KafkaConfigError: the stream does not read a topic, or a topic was recreated since, so that its old offsets mean other records.
    """
    plan, earlier = KafkaPlan.decode(data), KafkaPlan.decode(then)
    wanted = _wanted_topics(plan, topics)
    for topic in sorted(wanted):
        was, now = earlier.topic_ids.get(topic), plan.topic_ids.get(topic)
        if was is not None and now is not None and was != now:
            raise KafkaConfigError(TO, f"goes back to before topic {topic!r} was recreated", "Use `kstream offsets reset` for it.")
    epochs = {(r.topic, r.partition): epoch for r, epoch in zip(earlier.ranges, earlier.from_epochs, strict=True)}
    begins = {(r.topic, r.partition): r.fromOffset for r in earlier.ranges if r.topic in wanted}
    read = plan.until_offsets
    return _moved(plan, {p: at for p, at in begins.items() if p in read}, epochs, {})


def _driver_client(params: KafkaParams) -> DriverClient:
    """Create the client of drivers. Loads librdkafka, so it is imported late."""
    from kstream_kafka.client.driver_client import KafkaDriverClient

    return KafkaDriverClient(params)


# -- topics and partitions that move


def _wanted_topics(plan: KafkaPlan, named: Collection[str]) -> set[str]:
    """Return the named topics, or all topics of the stream. Raises KafkaConfigError for a topic that the stream does not read."""
    read = {r.topic for r in plan.ranges}
    stray = sorted(set(named) - read)
    if stray:
        raise KafkaConfigError("--topic", f"names {', '.join(map(repr, stray))}, and the stream reads {', '.join(sorted(read))}")
    return set(named) or read


def _recreated(plan: KafkaPlan, ids: Mapping[str, str]) -> set[str]:
    """Return the topics whose id differs from the id in the plan."""
    return {topic for topic, topic_id in ids.items() if plan.topic_ids.get(topic, topic_id) != topic_id}


def _movable_partitions(
    plan: KafkaPlan, existing: Collection[Partition], wanted: Collection[str], recreated: Collection[str]
) -> set[Partition]:
    """Return the partitions of the wanted topics that the stream reads, and all partitions of recreated topics.

    Raises:
        PartitionRevokedError: the stream reads a partition that no longer exists.
    """
    read = plan.until_offsets.keys()
    revoked = [p for p in read if p[0] in wanted and p[0] not in recreated and p not in existing]
    if revoked:
        raise PartitionRevokedError(revoked)
    return {p for p in existing if p[0] in wanted and (p in read or p[0] in recreated)}


# -- positions


def _one_position(to: Any) -> Position:
    """Return the position for all partitions. Raises KafkaConfigError for an offset, which can only mean one partition."""
    position = Position.parse(to, TO)
    if position.kind == "offset":
        raise KafkaConfigError(TO, f"is the one offset {position.value} for all partitions", "Give a file with offsets by partition.")
    return position


def _positions_by_partition(to: Mapping[str, Any]) -> dict[Partition, Position]:
    """Parse `{"topic": {"0": position}}`, the form in which Structured Streaming writes offsets.

    Raises:
        KafkaConfigError: the value has another form, or a position cannot be understood.
    """
    try:
        return {(topic, int(number)): Position.parse(at, TO) for topic, numbers in to.items() for number, at in numbers.items()}
    except (AttributeError, ValueError) as e:
        raise KafkaConfigError(TO, "is no object of topics, partitions and positions", 'Write {"topic": {"0": 5, "1": "latest"}}.') from e


def _checked_positions(
    each: Mapping[Partition, Position], movable: Collection[Partition], recreated: Collection[str]
) -> dict[Partition, Position | None]:
    """Return the positions that the user gave by partition, as the resolver takes them.

    Raises:
        KafkaConfigError: they name a partition that the stream does not read, or leave out a partition of a recreated topic.
    """
    stray = sorted(each.keys() - set(movable))
    if stray:
        raise KafkaConfigError(TO, f"names {stray}, which the stream does not read")
    missing = sorted(p for p in movable if p[0] in recreated and p not in each)
    if missing:
        raise KafkaConfigError(TO, f"leaves out {missing} of a recreated topic")
    return dict(each)


def _require_inside(offsets: Mapping[Partition, int], logs: Mapping[Partition, tuple[int, int]]) -> None:
    """Raise KafkaConfigError for offsets outside of their logs."""
    rows = [(*p, at, *logs[p]) for p, at in sorted(offsets.items()) if not logs[p][0] <= at <= logs[p][1]]
    if rows:
        texts = [f"{topic}-{number}: {at} (the log is [{begin}, {end}))" for topic, number, at, begin, end in rows]
        raise KafkaConfigError(TO, f"has offsets outside of their logs: {'; '.join(texts)}")


# -- the plan


def _moved(
    plan: KafkaPlan, offsets: Mapping[Partition, int], epochs: Mapping[Partition, int | None], ids: Mapping[str, str]
) -> ResetResult:
    """Return the result of a move: plan data with some partitions at other offsets, the changes, and the skipped ranges.

    Old partitions of a recreated topic that no longer exist are left out.

    Args:
        plan: the newest plan of the stream.
        offsets: the new offset of each partition that moves.
        epochs: the leader epochs at these offsets; None for an unknown one.
        ids: the topic ids now, as far as they were asked for.
    """
    recreated = _recreated(plan, ids)
    old = plan.until_offsets
    stay = {p: at for p, at in old.items() if p not in offsets and p[0] not in recreated}
    ends = {**stay, **offsets}
    changes = [
        OffsetChange(*p, old.get(p), ends.get(p), "the topic was recreated" if p[0] in recreated else "")
        for p in sorted(old.keys() | ends.keys())
        if old.get(p) != ends.get(p) or p[0] in recreated
    ]
    skipped = [
        LostRange(c.topic, c.partition, c.old, c.new, "reset", "skipped by kstream offsets").to_json()
        for c in changes
        if c.old is not None and c.new is not None and c.new > c.old and c.topic not in recreated
    ]
    known = {**{p: e for p, e in plan.until_epochs.items() if p in stay}, **{p: epochs.get(p) for p in offsets}}
    return ResetResult(_empty_plan(plan, ends, known, {**plan.topic_ids, **ids}).encode(), changes, skipped)


def _empty_plan(
    plan: KafkaPlan, ends: Mapping[Partition, int], epochs: Mapping[Partition, int | None], ids: Mapping[str, str]
) -> KafkaPlan:
    """Return a plan that reads nothing and ends at these offsets. Partitions that stay keep their mark `ahead`."""
    ranges = [OffsetRange(*p, at, at) for p, at in sorted(ends.items())]
    reached = [epochs.get((r.topic, r.partition)) for r in ranges]
    still_ahead = frozenset(p for p in plan.ahead if ends.get(p) == plan.until_offsets.get(p))
    return KafkaPlan(ranges, reached, reached, ids, still_ahead, plan.stopping_offsets)
