"""ReceiverInputDStream: each batch is what a receiver has stored since the last one.

Its plan data: `{"blocks": [[id, number of records], …]}`, in the order of arrival.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from kstream.batch import InputOutcome, InputPlan, ReceiverInfo, events
from kstream.batch_time import Time
from kstream.clock import Clock
from kstream.dstream.input_dstream import InputDStream
from kstream.dstream.ports import StreamHost
from kstream.errors import BlocksLostError, ConfigurationError, NotRecoverableError
from kstream.receiver import ReceivedBlocks, Receiver, ReceiverNews, ReceiverSupervisor

if TYPE_CHECKING:
    from pyspark import RDD

logger = logging.getLogger(__name__)
ON_DATA_LOSS = "spark.streaming.kstream.receiver.onDataLoss"
FAIL, SKIP, REPORT = "fail", "skip", "report"


class ReceiverInputDStream(InputDStream):
    """Runs the receiver in the driver, where its blocks stay until no batch or window needs them. One partition a block.

    The blocks die with the driver: a batch that was planned and had not ended (and a window that reaches back to before the restart) asks
    for blocks that are gone. `spark.streaming.kstream.receiver.onDataLoss` says what comes of it – "fail" (default): BlocksLostError,
    after `maxBatchFailures` restarts the batch is in the ledger with its block ids and counts; "skip": the batch runs with what there is
    and the loss goes to the ledger; "report": listeners are told, too.
    """

    operator = "receiver stream"
    no_recipe_reason: ClassVar[str] = "a receiver stream made by its class instead of by the context"

    def __init__(self, ssc: StreamHost, receiver: Receiver, clock: Clock) -> None:
        super().__init__(ssc)
        self.receiver = receiver
        self._clock = clock
        self._blocks = ReceivedBlocks(self.id, clock, ssc.settings.get("spark.streaming.blockInterval"))
        self._supervisor: ReceiverSupervisor | None = None
        self._last_error = ("", "", -1)
        self._gone: dict[str, int] = {}
        self._told: set[str] = set()

    # -- life

    def start(self) -> None:
        policy = self._on_data_loss()
        if policy not in (FAIL, SKIP, REPORT):
            raise ConfigurationError(f"{ON_DATA_LOSS} is {policy!r}; it must be {FAIL}, {SKIP} or {REPORT}", key=ON_DATA_LOSS, value=policy)
        delay = self.ssc.settings.get("spark.streaming.receiverRestartDelay")
        self._supervisor = ReceiverSupervisor(self.receiver, self.id, self._blocks, self._clock, delay, self._news)
        self._supervisor.start()

    def stop_receiving(self, timeout: float) -> bool:
        """Stops the receiver and waits for its `onStop`, in which it may still store."""
        if self._supervisor is None:
            return False
        self._supervisor.stop(timeout)
        return bool(self._blocks.waiting())

    def stop(self) -> None:
        """Stops the receiver, if it runs still, without much patience."""
        if self._supervisor is not None:
            self._supervisor.stop(2.0)
            self._supervisor = None

    def _news(self, news: ReceiverNews) -> None:
        if news.message:
            error = "" if news.error is None else f"{type(news.error).__name__}: {news.error}"
            self._last_error = (news.message, error, self._clock.time_ms())
        kinds = {
            "started": events.StreamingListenerReceiverStarted,
            "stopped": events.StreamingListenerReceiverStopped,
            "error": events.StreamingListenerReceiverError,
        }
        name = f"{type(self.receiver).__name__}-{self.id}"
        info = ReceiverInfo(self.id, name, news.kind != "stopped", socket.gethostname(), "driver", *self._last_error)
        self.tell(kinds[news.kind](info))

    # -- planning

    def starting_point(self) -> InputPlan:
        return InputPlan({"blocks": []})

    def plan(self, time: Time) -> InputPlan:
        """All blocks that no batch has taken."""
        waiting = self._blocks.waiting()
        return InputPlan({"blocks": [list(block) for block in waiting]}, sum(count for _, count in waiting))

    def planned(self, time: Time, data: Mapping[str, Any]) -> None:
        self._blocks.take(_ids(data))

    def restored(self, time: Time, data: Mapping[str, Any]) -> None:
        """There is no cursor: what comes, comes. The data must be a receiver's, though."""
        if "blocks" not in data:
            raise NotRecoverableError(
                f"{self!r} cannot go on from the stored data of another kind of input ({', '.join(sorted(data))}): the order in which the "
                "inputs are made has changed. Restore it, or use a new checkpoint directory.",
                time=time.milliseconds,
            )

    # -- the batch

    def rdd(self, time: Time, data: Mapping[str, Any]) -> RDD[Any]:
        """One partition a block. Without blocks a plain empty RDD."""
        lost = [[name, count] for name, count in data["blocks"] if self._blocks.get(name) is None]
        if lost and self._on_data_loss() == FAIL:
            raise BlocksLostError(
                f"batch {time} was to read {_listed(lost)}, held by a driver that is dead: nothing can bring them back. Restart with "
                f"{ON_DATA_LOSS}=skip to go on with what there is (the loss goes to the ledger).",
                time=time.milliseconds, stream=self.id, blocks=lost,
            )  # fmt: skip
        self._gone.update((name, count) for name, count in lost)
        blocks = [block for block in map(self._blocks.get, _ids(data)) if block is not None]
        sc = self.ssc.sparkContext
        return sc.parallelize(blocks, len(blocks)).flatMap(_records) if blocks else sc.emptyRDD()

    def outcome(self, time: Time, data: Mapping[str, Any]) -> InputOutcome:
        """Blocks that were missed since the last outcome, each once: this batch's, and those of older ones that its windows asked for."""
        gone = [(name, count) for name, count in self._gone.items() if name not in self._told]
        self._told.update(name for name, _ in gone)
        for name, count in gone:
            logger.warning("batch %s went on without block %s of %d records, which died with the driver that held it", time, name, count)
        cause = {"cause": "driver death", "detail": "held by a driver that died before the batch had ended"}
        lost = [{"block": name, "records": count, **cause} for name, count in gone]
        return InputOutcome(lost=lost, report=self._on_data_loss() == REPORT)

    def metadata(self, time: Time, data: Mapping[str, Any]) -> Mapping[str, Any]:
        name = type(self.receiver).__name__
        return {"progress": {"description": f"Receiver[{name}]", "metrics": {"blocks": len(data["blocks"])}}}

    def clear_metadata(self, time: Time) -> None:
        before = dict(self._plans)
        super().clear_metadata(time)
        self._blocks.remove(name for old, data in before.items() if old not in self._plans for name in _ids(data))

    def _on_data_loss(self) -> str:
        return SKIP if self.lenient else self.ssc.settings.get(ON_DATA_LOSS)


def _ids(data: Mapping[str, Any]) -> list[str]:
    return [name for name, _count in data["blocks"]]


def _records(block: Iterable[Any]) -> Iterable[Any]:
    return block


def _listed(lost: list[list[Any]], most: int = 5) -> str:
    names = ", ".join(f"{name} ({count} records)" for name, count in lost[:most])
    return f"block {names}" if len(lost) == 1 else f"{len(lost)} blocks, {names}{' …' if len(lost) > most else ''}"
