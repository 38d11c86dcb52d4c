"""TrackerLink: what one run of a receiver says to the driver's ReceiverTracker, and hears from it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from kstream.batch.plan import Json
from kstream.errors import RpcError, RpcUnreachableError
from kstream.loop import THREADS, Runtime
from kstream.receiver import messages
from kstream.receiver.executor_process import ExecutorProcess
from kstream.receiver.received_block_handler import StoredBlock
from kstream.rpc import RpcClient
from kstream.wal import handle_to_json

logger = logging.getLogger(__name__)


class TrackerLink:
    """Thread-safe. Calls block, and raise RpcError, but for those that say otherwise."""

    def __init__(
        self, driver: RpcClient, stream_id: int, run: int, pauses_s: Sequence[float] = (1.0, 5.0), runtime: Runtime = THREADS
    ) -> None:
        """`pauses_s`: after how long a driver that has not answered is told of a block again."""
        self._driver = driver
        self.stream_id = stream_id
        self._run = run
        self._pauses = pauses_s
        self._never = runtime.event()

    def register(self, executor: ExecutorProcess, host: str) -> Mapping[str, Any]:
        """Whether the receiver may run here (`accepted`), and the stores it may copy blocks to (`peers`)."""
        return self._ask(messages.REGISTER_RECEIVER, run=self._run, executor=executor.executor_id, host=host)

    def first_attempt_runs(self, stage: int) -> bool:
        """Whether the task of this receiver that Spark started first still runs, so that the one that asks is a speculative copy."""
        return self._ask(messages.FIRST_ATTEMPT, stage=stage)["runs"]

    def deregister(self, message: str, error: BaseException | None) -> None:
        """It has stopped, for good or for a restart. What cannot be told is in the executor's log."""
        self._tell(messages.DEREGISTER_RECEIVER, run=self._run, message=message, error=_said(error))

    def add_block(self, name: str, stored: StoredBlock, metadata: Json) -> bool:
        """Whether the driver has taken it; its records may be acknowledged then. Can be said again, and is if no answer comes: a driver
        that was held up for a while, or a connection that broke, costs no block."""
        fields = {
            "run": self._run, "id": name, "records": stored.num_records, "executors": stored.executors, "metadata": metadata,
            "handle": handle_to_json(stored.handle), "stored_at": stored.stored_at,
        }  # fmt: skip
        for pause in self._pauses:
            try:
                return self._ask(messages.ADD_BLOCK, **fields)["added"]
            except RpcUnreachableError as e:
                logger.warning("the driver has not answered for block %s, and is told again in %g s: %s", name, pause, e)
            self._never.wait(pause)
        return self._ask(messages.ADD_BLOCK, **fields)["added"]

    def report(self, message: str, error: BaseException | None) -> None:
        """As `deregister`, of a fault that it gets over."""
        self._tell(messages.REPORT_ERROR, message=message, error=_said(error))

    def next_command(self) -> Mapping[str, Any]:
        """What to do (`command`, None for nothing) and the stores of now (`peers`). Waits for some seconds."""
        return self._ask(messages.NEXT_COMMAND, run=self._run)

    def _ask(self, what: str, **fields: Any) -> dict[str, Any]:
        return messages.of_body(self._driver.ask(what, messages.to_body(stream=self.stream_id, **fields)))

    def _tell(self, what: str, **fields: Any) -> None:
        try:
            self._ask(what, **fields)
        except RpcError as e:
            logger.warning("%s", e)


def _said(error: BaseException | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {error}"
