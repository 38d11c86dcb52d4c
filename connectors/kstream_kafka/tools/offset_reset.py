"""Other offsets for a stream that does not run: `kstream offsets reset` and `rewind`. Stored data in, stored data out."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import DriverClient, Partition
from kstream_kafka.errors import KafkaConfigError, PartitionRevokedError
from kstream_kafka.planning.data_loss import LostRange
from kstream_kafka.planning.offset_range import OffsetRange
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.planning.positions import Position
from kstream_kafka.source.starting_offsets import OffsetResolver
from kstream_kafka.source.subscription import Topics
from kstream_kafka.tools.lag import merged

TO = "--to"


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's. `old` None: it was not read so far; `new` None: it is not there any more."""

    topic: str
    partition: int
    old: int | None
    new: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """The data of a plan that reads nothing and stands at the new offsets; what changes; what is skipped, as entries of the ledger."""

    data: dict[str, Any]
    moves: list[Move]
    skipped: list[dict[str, Any]]


def standing_still(data: Mapping[str, Any]) -> dict[str, Any]:
    """A plan that reads nothing, where the stream stands after the plan of `data`."""
    plan = KafkaPlan.from_json(data)
    return _plan_at(plan, plan.ends, plan.end_epochs, plan.topic_ids).to_json()


def reset_offsets(
    stored: Mapping[str, Any], given: Mapping[str, Any], data: Mapping[str, Any], to: Any, topics: Collection[str] = (),
    make_client: Callable[[KafkaParams], DriverClient] | None = None,
) -> Moved:  # fmt: skip
    """The newest plan's stream at the positions `to`: one for all partitions of `topics` (none named: all), or by topic and partition.

    A topic that was made anew is taken as it is now, all of it. Asks the brokers: blocks, raises KafkaErrors; KafkaConfigError when
    an offset lies outside of its log. `stored` and `given` as for `log_ends`.
    """
    plan, params = KafkaPlan.from_json(data), KafkaParams.parse(merged(stored, given))
    each = _each(to) if isinstance(to, Mapping) else {}
    wanted = _topics(plan, topics or ({p[0] for p in each} if each else ()))
    client = (make_client or _real_client)(params)
    try:
        ids = client.topic_ids(wanted)
        there = client.partitions(Topics(tuple(sorted(wanted))))
        positions = _positions(plan, ids, there, wanted, Position.parse(to, TO) if not each else None, each)
        begin, end = client.earliest(positions), client.latest(positions)
        found = OffsetResolver("error", params.group, lambda: round(time.time() * 1000)).resolve(client, positions)
    finally:
        client.close()
    bad = [f"{t}-{n}: {at} (the log is [{begin[t, n].offset}, {end[t, n].offset}))" for (t, n), at in sorted(found.items())
           if not begin[t, n].offset <= at <= end[t, n].offset]  # fmt: skip
    if bad:
        raise KafkaConfigError(TO, f"has offsets outside of their logs: {'; '.join(bad)}")
    known = {p: end[p].leader_epoch if at == end[p].offset else None for p, at in found.items()}
    return _moved(plan, found, known, ids)


def rewound_offsets(data: Mapping[str, Any], then: Mapping[str, Any], topics: Collection[str] = ()) -> Moved:
    """The newest plan's stream where it stood before the earlier plan `then`. Asks nobody.

    KafkaConfigError for a topic that has been made anew since: its offsets of then mean nothing.
    """
    plan, earlier = KafkaPlan.from_json(data), KafkaPlan.from_json(then)
    wanted = _topics(plan, topics)
    for topic in sorted(wanted):
        was, now = earlier.topic_ids.get(topic), plan.topic_ids.get(topic)
        if was is not None and now is not None and was != now:
            raise KafkaConfigError(TO, f"goes back to before topic {topic!r} was made anew", "Use `kstream offsets reset` for it.")
    begun = {(r.topic, r.partition): epoch for r, epoch in zip(earlier.ranges, earlier.from_epochs, strict=True)}
    begins = {(r.topic, r.partition): r.fromOffset for r in earlier.ranges if r.topic in wanted}
    here = plan.ends
    return _moved(plan, {p: at for p, at in begins.items() if p in here}, begun, {})


def _real_client(params: KafkaParams) -> DriverClient:
    from kstream_kafka.client.driver_client import KafkaDriverClient  # only who asks loads librdkafka

    return KafkaDriverClient(params)


def _topics(plan: KafkaPlan, named: Collection[str]) -> set[str]:
    read = {r.topic for r in plan.ranges}
    stray = sorted(set(named) - read)
    if stray:
        raise KafkaConfigError("--topic", f"names {', '.join(map(repr, stray))}, and the stream reads {', '.join(sorted(read))}")
    return set(named) or read


def _each(to: Mapping[str, Any]) -> dict[Partition, Position]:
    """`{"topic": {"0": position}}`, as Structured Streaming writes offsets."""
    try:
        return {(topic, int(number)): Position.parse(at, TO) for topic, numbers in to.items() for number, at in numbers.items()}
    except (AttributeError, ValueError) as e:
        raise KafkaConfigError(TO, "is no object of topics, partitions and positions", 'Write {"topic": {"0": 5, "1": "latest"}}.') from e


def _positions(
    plan: KafkaPlan, ids: Mapping[str, str], there: Collection[Partition], wanted: Collection[str], everywhere: Position | None,
    each: Mapping[Partition, Position],
) -> dict[Partition, Position | None]:  # fmt: skip
    """What is said about each partition that is to move. Of a topic that is another one now every partition is, since none is known."""
    anew = {t for t in wanted if t in ids and plan.topic_ids.get(t, ids[t]) != ids[t]}
    known = plan.ends.keys()
    move = {p for p in there if p[0] in wanted and (p in known or p[0] in anew)}
    gone = sorted(p for p in known if p[0] in wanted and p[0] not in anew and p not in there)
    if gone:
        raise PartitionRevokedError(gone)
    if everywhere is not None:
        if everywhere.kind == "offset":
            raise KafkaConfigError(TO, f"is the one offset {everywhere.value} for all partitions", "Give a file with offsets by partition.")
        return dict.fromkeys(move, everywhere)
    stray, missing = sorted(each.keys() - move), sorted(p for p in move if p[0] in anew and p not in each)
    if stray or missing:
        word = f"names {stray}, which the stream does not read" if stray else f"leaves out {missing} of a topic that was made anew"
        raise KafkaConfigError(TO, word)
    return dict(each)


def _moved(plan: KafkaPlan, found: Mapping[Partition, int], epochs: Mapping[Partition, int | None], ids: Mapping[str, str]) -> Moved:
    """The plan with some partitions elsewhere; those of a topic made anew that are not there now are left out."""
    anew = {t for t, number in ids.items() if plan.topic_ids.get(t, number) != number}
    old = plan.ends
    stay = {p: at for p, at in old.items() if p not in found and p[0] not in anew}
    moves: list[Move] = []
    skipped: list[dict[str, Any]] = []
    for p in sorted(old.keys() | found.keys()):
        was, new = old.get(p), found.get(p, stay.get(p))
        note = "the topic was made anew" if p[0] in anew else ""
        if was != new or note:
            moves.append(Move(*p, was, new, note))
        if was is not None and new is not None and not note and new > was:
            skipped.append(LostRange(*p, was, new, "reset", "skipped by kstream offsets").to_json())
    ends = {**stay, **found}
    known = {**{p: e for p, e in plan.end_epochs.items() if p in stay}, **{p: epochs.get(p) for p in found}}
    return Moved(_plan_at(plan, ends, known, {**plan.topic_ids, **ids}).to_json(), moves, skipped)


def _plan_at(plan: KafkaPlan, ends: Mapping[Partition, int], epochs: Mapping[Partition, int | None], ids: Mapping[str, str]) -> KafkaPlan:
    ranges = [OffsetRange(*p, at, at) for p, at in sorted(ends.items())]
    reached = [epochs.get((r.topic, r.partition)) for r in ranges]
    still_ahead = frozenset(p for p in plan.ahead if ends.get(p) == plan.ends.get(p))
    return KafkaPlan(ranges, reached, reached, ids, still_ahead, plan.until)
