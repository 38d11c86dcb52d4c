"""What the ReceivedBlockTracker logs: blocks added, blocks forgotten. Frozen records, and their stored form as JSON bytes.

The form is that of all records of kstream (`checkpoint/format.py`: canonical, with kind, version and checksum). A block is
`{"handle": (`wal/handles.py`) | null, "id", "metadata", "records", "stream"}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from kstream.batch.plan import Json
from kstream.checkpoint.format import decode, encode
from kstream.errors import CorruptRecordError
from kstream.wal import WriteAheadLogRecordHandle, handle_of_json, handle_to_json


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
    handle: WriteAheadLogRecordHandle | None = None
    block_id_valid: bool = field(default=True, compare=False)
    executors: tuple[str, ...] = field(default=(), compare=False)
    """Ids of those whose stores have it. Not stored either."""
    stored_at: int = field(default=0, compare=False)
    """When its receiver wrote it, by that receiver's clock, in ms: no later clean-up of its log may take it. Not stored; 0 is unknown."""

    def of_stream(self, stream_id: int) -> ReceivedBlockInfo:
        """The same block, under the number that its stream has now."""
        return replace(self, stream_id=stream_id)


@dataclass(frozen=True, slots=True)
class BlockAdditionEvent:
    """A block is stored; once this is durable its receiver may be told so. `epoch`: of the driver, whose graph has that stream."""

    block: ReceivedBlockInfo
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class BatchCleanupEvent:
    """No one needs these blocks any more; the plans that name them are about to go."""

    block_ids: tuple[str, ...]


ReceivedBlockEvent: TypeAlias = BlockAdditionEvent | BatchCleanupEvent

ADDED, CLEANED = "block-added", "blocks-cleaned"


def to_bytes(event: ReceivedBlockEvent) -> bytes:
    """TypeError or ValueError where a block's metadata is no JSON value."""
    if isinstance(event, BlockAdditionEvent):
        return encode(ADDED, {"block": _block(event.block), "epoch": event.epoch})
    return encode(CLEANED, {"blocks": list(event.block_ids)})


def from_bytes(data: bytes, where: str) -> ReceivedBlockEvent:
    """Its blocks are not valid in any block store. CorruptRecordError or FormatVersionError, which say `where`, for other bytes."""
    kind = next((kind for kind in (ADDED, CLEANED) if f'"kind":"{kind}"'.encode() in data), ADDED)
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
        return BlockAdditionEvent(_info(fields["block"]), fields["epoch"])
    return BatchCleanupEvent(tuple(fields["blocks"]))


def _block(info: ReceivedBlockInfo) -> dict[str, Json]:
    handle = handle_to_json(info.handle)
    return {"stream": info.stream_id, "id": info.block_id, "records": info.num_records, "metadata": info.metadata, "handle": handle}


def _info(block: Mapping[str, Any]) -> ReceivedBlockInfo:
    handle = handle_of_json(block["handle"])
    return ReceivedBlockInfo(block["stream"], block["id"], block["records"], block["metadata"], handle, block_id_valid=False)
