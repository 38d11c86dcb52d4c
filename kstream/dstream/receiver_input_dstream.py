"""ReceiverInputDStream: each batch has the blocks that a receiver has stored since the last one.

The stored form of its ReceiverPlan is `{"kind": "blocks", "blocks": [[id, number of records or null], …]}`, in the order of arrival. A
block in a receiver's write-ahead log has a third element, its handle (`wal/write_ahead_log.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstream.batch import InputOutcome, Json, PlannedInput
from kstream.batch.plan import BLOCKS, FAIL, REPORT, SKIP, kind_of
from kstream.batch_time import Time
from kstream.dstream.input_dstream import InputDStream
from kstream.dstream.ports import InputServices, StreamHost
from kstream.dstream.received_blocks import NoReceivedBlocks, ReceivedBlocks
from kstream.errors import BlocksLostError
from kstream.receiver import Receiver
from kstream.receiver.block_reading import BlockLocations
from kstream.receiver.block_store import effective_storage_level
from kstream.receiver.received_block_tracker import ReceivedBlockInfo
from kstream.receiver.settings import RECEIVER_ON_DATA_LOSS
from kstream.wal import WriteAheadLogRecordHandle, handle_of_json, handle_to_json
from kstream.wal.settings import WRITE_AHEAD_LOG

if TYPE_CHECKING:
    from pyspark import RDD

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """A block that a batch reads. `num_records` is None if the records were not counted."""

    block_id: str
    num_records: int | None
    handle: WriteAheadLogRecordHandle | None = None

    def to_json(self) -> list[Json]:
        """Return the stored form: `[id, number of records or null]`, with the handle as a third element if there is one."""
        handle = handle_to_json(self.handle)
        return [self.block_id, self.num_records, *([] if handle is None else [handle])]

    @staticmethod
    def from_json(row: Sequence[Json]) -> PlannedBlock:
        """Return the block whose `to_json` gave this row. NotRecoverableError if the class of its handle no longer exists."""
        block_id, num_records, *handle = row
        return PlannedBlock(block_id, num_records, handle_of_json(handle[0]) if handle else None)


@dataclass(frozen=True, slots=True)
class ReceiverPlan(PlannedInput):
    """The blocks of a batch, in the order of arrival."""

    blocks: Sequence[PlannedBlock]

    @property
    def num_records(self) -> int:
        return sum(block.num_records or 0 for block in self.blocks)

    @property
    def is_empty(self) -> bool:
        return not self.blocks

    @property
    def block_ids(self) -> list[str]:
        """The ids of the blocks, in the order of arrival."""
        return [block.block_id for block in self.blocks]

    def encode(self) -> Mapping[str, Json]:
        return {"kind": BLOCKS, "blocks": [block.to_json() for block in self.blocks]}


class ReceiverInputDStream(InputDStream[ReceiverPlan]):
    """The stream of a receiver, which runs on an executor and stores records as blocks. Each block is one partition of a batch.

    Without a write-ahead log blocks are lost with the executors that have them, and with the driver. Then a batch that was planned and had
    not ended, or a window over older batches, needs blocks that are gone. `spark.streaming.kstream.receiver.onDataLoss` decides:

    - "fail" (default): BlocksLostError. If `maxBatchFailures` gives the batch up, the ledger has its block ids and counts.
    - "skip": the batch runs without the lost blocks, and the loss goes to the ledger.
    - "report": as "skip", and listeners get the loss.

    Threads: the JobGenerator's thread plans, makes RDDs and releases; a user's thread may make RDDs (by `slice`); the JobScheduler's thread
    calls `outcome`. `_loss_lock` guards the data that they share: `_planned_here`, `_read`, `_lost` and `_reported`.
    """

    operator = "receiver stream"
    adapts_rate = True
    no_recipe_reason: str = "a receiver stream made by its class instead of by the context"

    def __init__(self, ssc: StreamHost, receiver: Receiver) -> None:
        super().__init__(ssc)
        self.receiver = receiver
        self._on_data_loss = self.ssc.settings[RECEIVER_ON_DATA_LOSS]
        """The policy for lost blocks. A replay that tolerates losses skips them."""
        self._loss_lock = threading.Lock()
        self._planned_here: set[str] = set()
        """Ids of blocks in plans of this driver. Earlier drivers planned the others."""
        self._read: dict[str, Time] = {}
        """The blocks of the RDDs that were made, each with its batch."""
        self._lost: dict[str, dict[str, Any]] = {}
        """Lost blocks: block id → the ledger entry of the loss."""
        self._reported: set[str] = set()
        """Ids of lost blocks that an outcome has reported."""
        self._rate: int | None = None
        """The rate that the receiver was told last. The thread that ends a batch writes it, and the generator's reads it."""

    # -- life

    @property
    def outlives_driver(self) -> bool:
        """Whether receivers write a write-ahead log. Blocks that are only in block stores are lost with the driver."""
        return self.ssc.settings[WRITE_AHEAD_LOG]

    def start(self, services: InputServices) -> None:
        """Keep the services, and log a warning if blocks are stored at another level than the receiver asks for."""
        super().start(services)
        for warning in effective_storage_level(self.receiver.storageLevel, self.ssc.settings[WRITE_AHEAD_LOG]).warnings:
            logger.warning("%s", warning)

    def start_replay(self, services: InputServices) -> None:
        """Get ready to return the RDDs of past batches; with `services.tolerate_loss` without the blocks that are lost."""
        super().start_replay(services)
        if services.tolerate_loss:
            self._on_data_loss = SKIP

    # -- planning

    def starting_point(self) -> ReceiverPlan:
        return ReceiverPlan(())

    def decode(self, data: Mapping[str, Json]) -> ReceiverPlan:
        """Return the plan whose `encode` gave this data.

        Raises:
            NotRecoverableError: the data is of another kind of input, or the class of a handle no longer exists.
        """
        if kind_of(data) != BLOCKS:
            raise self.another_kind(data)
        return ReceiverPlan([PlannedBlock.from_json(row) for row in data["blocks"]])

    def update_rate(self, recordsPerSecond: int) -> None:
        """Tell the receiver the rate at which it may store records one by one. Called by the thread that ends a batch; returns at once."""
        self._rate = recordsPerSecond
        self._blocks.update_rate(self.id, recordsPerSecond)

    def plan(self, time: Time) -> ReceiverPlan:
        """Return a plan of all unallocated blocks. Idempotent: a batch time that is planned already gets the same plan again."""
        if (planned := self._plans.get(time)) is not None:
            return planned
        return ReceiverPlan([PlannedBlock(b.block_id, b.num_records, b.handle) for b in self._blocks.unallocated(self.id)])

    def restored(self, time: Time, plan: ReceiverPlan) -> None:
        """Do nothing: the tracker reads from the log which blocks the stored plans have allocated."""

    def planned(self, time: Time, plan: ReceiverPlan) -> None:
        """Allocate the blocks of the plan, which is durable."""
        self._blocks.allocate(self.id, plan.block_ids)
        with self._loss_lock:
            self._planned_here.update(plan.block_ids)

    # -- the batch

    def rdd(self, time: Time, plan: ReceiverPlan) -> RDD[Any]:
        """Return an RDD of the plan's blocks, one partition a block. Without blocks it is a plain empty RDD.

        Raises:
            BlocksLostError: a block has no replica on a known store and no handle, and the policy is "fail". With the other policies the
                RDD leaves such blocks out, and the next `outcome` reports them.
        """
        blocks = self._blocks.locations(
            ReceivedBlockInfo(self.id, block.block_id, block.num_records, handle=block.handle, block_id_valid=False)
            for block in plan.blocks
        )
        lost = [block for block in blocks if block.lost]
        tolerate_loss = self._on_data_loss != FAIL
        if lost and not tolerate_loss:
            raise BlocksLostError(
                f"batch {time} cannot read {_listed(lost)}: the executors that held them are dead, or belonged to a former driver. "
                f"Restart with {RECEIVER_ON_DATA_LOSS}=skip to continue without them (the loss goes to the ledger). "
                f"{WRITE_AHEAD_LOG}=true also keeps newly received records in the checkpoint.",
                time=time.milliseconds,
                stream=self.id,
                blocks=[[block.block_id, block.num_records] for block in lost],
            )
        there = [block for block in blocks if not block.lost]
        with self._loss_lock:
            self._read.update((block.block_id, time) for block in blocks)
            for block in lost:
                self._lost[block.block_id] = self._loss(block.block_id, block.num_records, "no live executor has it")
        return self._blocks.rdd(there, tolerate_loss) if there else self.ssc.sparkContext.emptyRDD()

    def outcome(self, time: Time, plan: ReceiverPlan) -> InputOutcome:
        """Return the blocks that were found lost since the last outcome, each once. Logs a warning for each. Any thread.

        They are blocks of this batch, or blocks of older batches that its windows needed. Those of later batches, which are generated
        already, are left to the outcomes of these batches.
        """
        counts = {block.block_id: block.num_records for block in plan.blocks}
        not_found = self._blocks.lost()
        with self._loss_lock:
            for block_id, why in not_found.items():
                if block_id in self._read:
                    self._lost.setdefault(block_id, self._loss(block_id, counts.get(block_id), why))
            found = [block_id for block_id in self._lost if block_id not in self._reported and self._read[block_id] <= time]
            lost = [self._lost[block_id] for block_id in found]
            self._reported.update(found)
        for loss in lost:
            logger.warning("batch %s continued without block %s of %s records: %s", time, loss["block"], loss["records"], loss["detail"])
        return InputOutcome(lost=lost, report=self._on_data_loss == REPORT)

    def metadata(self, time: Time, plan: ReceiverPlan) -> Mapping[str, Any]:
        """Return the blocks; for the progress report their number, and the rate that the receiver was told last."""
        name, rate = type(self.receiver).__name__, self._rate
        limits = {} if rate is None else {"backpressureRate": rate}
        metrics = {"blocks": len(plan.blocks)}
        return {"blocks": plan.blocks, "progress": {"description": f"Receiver[{name}]", "metrics": metrics, **limits}}

    def clear_metadata(self, time: Time) -> None:
        """Forget old plans, release their blocks, and forget the losses of these blocks."""
        before = dict(self._plans)
        super().clear_metadata(time)
        for old, plan in before.items():
            if old not in self._plans:
                self._blocks.release(old, plan.block_ids)
                with self._loss_lock:
                    for block_ids in (self._planned_here, self._reported):
                        block_ids.difference_update(plan.block_ids)
                    for block_id in plan.block_ids:
                        self._lost.pop(block_id, None)
                        self._read.pop(block_id, None)

    @property
    def _blocks(self) -> ReceivedBlocks | NoReceivedBlocks:
        return self.services.received_blocks

    @property
    def tasks_report(self) -> bool:
        """Whether the policy lets a batch succeed without some of its blocks."""
        return self._on_data_loss != FAIL

    def _loss(self, block_id: str, count: int | None, why: str) -> dict[str, Any]:
        """Return the ledger entry of a lost block. Call this under `_loss_lock`.

        The cause of a block that an earlier driver planned is "driver death", because its block stores died with that driver.
        """
        cause = "executor death" if block_id in self._planned_here else "driver death"
        return {"block": block_id, "records": count, "cause": cause, "detail": why}


def _listed(lost: list[BlockLocations], most: int = 5) -> str:
    """Return the first `most` lost blocks in words, for an error message."""
    names: Iterable[str] = (f"{block.block_id} ({block.num_records} records)" for block in lost[:most])
    joined = ", ".join(names)
    return f"block {joined}" if len(lost) == 1 else f"{len(lost)} blocks, {joined}{' …' if len(lost) > most else ''}"
