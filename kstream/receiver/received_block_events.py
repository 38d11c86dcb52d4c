"""What the ReceivedBlockTracker logs: blocks added, given to a batch, forgotten. Frozen records, and their stored form as JSON bytes.

The form is that of all records of kstream (`checkpoint/format.py`: canonical, with kind, version and checksum). A block is
`{"handle": [path, offset, length] | null, "id", "metadata", "records", "stream"}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kstream.batch.plan import Json
from kstream.batch_time import Time
from kstream.checkpoint.format import decode, encode
from kstream.errors import CorruptRecordError
from kstream.wal import FileBasedWriteAheadLogSegment


@dataclass(frozen=True, slots=True)
class ReceivedBlockInfo:
    """A block as the driver knows it. `num_records` is None where nobody has counted; `metadata` is the receiver's, a JSON value.

    `block_id_valid`: whether block stores may have it. A recovered one is in none, their executors died with the driver; it is not
    stored and makes no difference between two infos.
    """

    stream_id: int
    block_id: str
    num_records: int | None = None
    metadata: Json = None
    handle: FileBasedWriteAheadLogSegment | None = None
    block_id_valid: bool = field(default=True, compare=False)
    executors: tuple[str, ...] = field(default=(), compare=False)
    """Ids of those whose stores have it. Not stored either."""


@dataclass(frozen=True, slots=True)
class BlockAdditionEvent:
    """A block is stored; once this is durable its receiver may be told so."""

    block: ReceivedBlockInfo


@dataclass(frozen=True, slots=True)
class BatchAllocationEvent:
    """All blocks of a batch, by stream id, in order; a stream without blocks is there, too."""

    time: Time
    blocks: Mapping[int, tuple[ReceivedBlockInfo, ...]]


@dataclass(frozen=True, slots=True)
class BatchCleanupEvent:
    """No one needs the blocks of these batches any more."""

    times: tuple[Time, ...]


ReceivedBlockEvent: TypeAlias = BlockAdditionEvent | BatchAllocationEvent | BatchCleanupEvent

ADDED, ALLOCATED, CLEANED = "block-added", "batch-allocated", "batches-cleaned"


def to_bytes(event: ReceivedBlockEvent) -> bytes:
    """TypeError or ValueError where a block's metadata is no JSON value."""
    if isinstance(event, BlockAdditionEvent):
        return encode(ADDED, {"block": _block(event.block)})
    if isinstance(event, BatchAllocationEvent):
        blocks = {str(stream): _blocks(infos) for stream, infos in event.blocks.items()}
        return encode(ALLOCATED, {"time": event.time.milliseconds, "blocks": blocks})
    return encode(CLEANED, {"times": [time.milliseconds for time in event.times]})


def from_bytes(data: bytes, where: str) -> ReceivedBlockEvent:
    """Its blocks are not valid in any block store. CorruptRecordError or FormatVersionError, which say `where`, for other bytes."""
    kind = next((kind for kind in (ADDED, ALLOCATED, CLEANED) if f'"kind":"{kind}"'.encode() in data), ADDED)
    try:
        fields = decode(kind, data, where)
    except CorruptRecordError as e:
        reason = e.facts["reason"]
        raise CorruptRecordError(
            f"{where} is damaged ({reason}), and with it what is known of the blocks it names. Restore the file from a copy; or remove "
            "it: blocks that no batch had taken are then lost.",
            path=where, reason=reason,
        ) from e  # fmt: skip
    if kind == ADDED:
        return BlockAdditionEvent(_info(fields["block"]))
    if kind == CLEANED:
        return BatchCleanupEvent(tuple(Time(time) for time in fields["times"]))
    return BatchAllocationEvent(Time(fields["time"]), {int(stream): tuple(map(_info, infos)) for stream, infos in fields["blocks"].items()})


def _blocks(infos: Iterable[ReceivedBlockInfo]) -> list[dict[str, Json]]:
    return [_block(info) for info in infos]


def _block(info: ReceivedBlockInfo) -> dict[str, Json]:
    handle = None if info.handle is None else [info.handle.path, info.handle.offset, info.handle.length]
    return {"stream": info.stream_id, "id": info.block_id, "records": info.num_records, "metadata": info.metadata, "handle": handle}


def _info(block: Mapping[str, Any]) -> ReceivedBlockInfo:
    handle = None if block["handle"] is None else FileBasedWriteAheadLogSegment(*block["handle"])
    return ReceivedBlockInfo(block["stream"], block["id"], block["records"], block["metadata"], handle, block_id_valid=False)
