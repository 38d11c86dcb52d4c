"""Starting offsets of a Log: its positions become offsets."""

from __future__ import annotations

from collections.abc import Collection

from kstream.errors import ConfigurationError
from kstream.offsets.log import Log, beginnings_of, ends_of
from kstream.offsets.offset_range import Partition
from kstream.offsets.positions import Position, Positions


def resolve(log: Log, positions: Positions, now_ms: int, partitions: Collection[Partition] | None = None) -> dict[Partition, int]:
    """Return the offsets of partitions of a Log. Blocks on the Log.

    Args:
        log: the Log.
        positions: the positions.
        now_ms: the wall clock, in ms.
        partitions: the partitions to resolve; None for all that the Log has.

    Returns:
        partition → offset. A time after every record means the end of the log.

    Raises:
        ConfigurationError: the Log does not have a partition, a partition has no position, an offset lies past the end of the log, or a
            position cannot be resolved: "committed", or a time where the Log has no times.
    """
    latest = ends_of(log)
    wanted = latest.keys() if partitions is None else set(partitions)
    stray = sorted((positions.each.keys() | wanted) - latest.keys())
    if stray:
        raise _refused(f"{log.name} has no partitions {stray}; it has {sorted(latest)}")
    given = {p: positions.of(p) for p in wanted}
    earliest = beginnings_of(log) if any(at is not None and at.kind in ("earliest", "back") for at in given.values()) else {}
    return {p: _offset(log, p, at, (earliest.get(p, 0), latest[p]), now_ms) for p, at in given.items()}


def _offset(log: Log, partition: Partition, position: Position | None, ends: tuple[int, int], now_ms: int) -> int:
    """Return the offset of one partition. May block on the Log. Raises the errors of `resolve`.

    `ends` are the first offset of the partition and the end of its log.
    """
    earliest, latest = ends
    if position is None:
        raise _refused(f"partition {partition} of {log.name} has no starting offset: a mapping must name every partition")
    match position.kind:
        case "offset":
            if position.value > latest:
                raise _refused(f"offset {position.value} lies past the end of partition {partition} of {log.name}, {latest}")
            return position.value
        case "earliest":
            return earliest
        case "latest":
            return latest
        case "back":
            return max(earliest, latest - position.value)
        case "ago" | "time":
            found = log.offsets_at(now_ms - position.value if position.kind == "ago" else position.value)
            if found is None:
                raise _refused(f"{log.name} has no times, so {position} means no offset")
            if partition not in found:
                place = f"{type(log).__name__}.offsets_at has no entry for partition {partition}"
                raise _refused(f"{place}: it must give None where no record is so young")
            at = found[partition]
            return latest if at is None else at
        case "committed":
            raise _refused(f"{log.name} has no consumer groups, so 'committed' means no offset")


def _refused(text: str) -> ConfigurationError:
    return ConfigurationError(text, key="startingOffsets")
