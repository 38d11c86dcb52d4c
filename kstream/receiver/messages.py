"""The messages between receivers and the driver's ReceiverTracker: the names are Spark's, the bodies JSON objects.

Receivers send requests, and the driver answers. The driver's commands to a receiver are answers to `NextCommand`, which the driver holds
back for a while. So no executor needs a port for commands, and a receiver notices when its driver is gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kstream.batch.plan import Json
from kstream.errors import RpcError, RpcUnreachableError
from kstream.receiver.executor_process import ExecutorProcess
from kstream.receiver.received_block_handler import ReceivedBlockStoreResult
from kstream.receiver.received_block_tracker import ReceivedBlockInfo
from kstream.rpc import RpcClient, of_body, to_body
from kstream.wal import handle_of_json, handle_to_json

logger = logging.getLogger(__name__)

REGISTER_RECEIVER: Final = "RegisterReceiver"
"""stream, run, executor, host → accepted, peers. `run` is the number of the receiver run: the driver ignores messages of earlier runs."""
REGISTER_STORE: Final = "RegisterBlockStore"
"""executor, host, port → {}"""
ADD_BLOCK: Final = "AddBlock"
"""stream, run, id, records, executors, metadata, handle (`wal/write_ahead_log.py`), stored_at (ms) → added"""
REPORT_ERROR: Final = "ReportError"
"""stream, run, message, error, ends (whether the run ends by the error) → {}"""
ON_START_RETURNED: Final = "OnStartReturned"
"""stream, run → {}: the receiver has started"""
DEREGISTER_RECEIVER: Final = "DeregisterReceiver"
"""stream, run, message, error, ends: whether the run ends → {}"""
FIRST_ATTEMPT: Final = "FirstAttemptOfReceiver"
"""stream, stage → runs: whether the first attempt of the task still runs, so that the asking attempt is a speculative copy"""
NEXT_COMMAND: Final = "NextCommand"
"""stream, run → command (one of those below, or null), its arguments, and peers: [[executor, host, port], …]"""

STOP_RECEIVER: Final = "StopReceiver"
UPDATE_RATE_LIMIT: Final = "UpdateRateLimit"
CLEANUP_OLD_BLOCKS: Final = "CleanupOldBlocks"
"""threshold (ms)"""


def block_fields(block_id: str, stored: ReceivedBlockStoreResult, metadata: Json) -> dict[str, Any]:
    """Return the fields of ADD_BLOCK that describe the block."""
    return {
        "id": block_id,
        "records": stored.num_records,
        "executors": stored.executors,
        "metadata": metadata,
        "handle": handle_to_json(stored.handle),
        "stored_at": stored.stored_at,
    }


def block_of_fields(stream_id: int, fields: Mapping[str, Any]) -> ReceivedBlockInfo:
    """Return the block that these fields of ADD_BLOCK describe."""
    return ReceivedBlockInfo(
        stream_id,
        fields["id"],
        fields["records"],
        fields["metadata"],
        handle_of_json(fields["handle"]),
        executors=tuple(fields["executors"]),
        stored_at=fields["stored_at"],
    )


class TrackerLink:
    """The client of the driver's ReceiverTracker for one receiver run. Thread-safe; every call blocks.

    `deregister`, `on_start_returned` and `report` log an RpcError; the other calls raise it.
    """

    def __init__(self, driver: RpcClient, stream_id: int, run: int, pauses_s: Sequence[float] = (1.0, 5.0)) -> None:
        """Make the client of a receiver run.

        Args:
            driver: The client of the driver's RpcServer.
            stream_id: The id of the receiver's stream.
            run: The number of the run.
            pauses_s: Seconds before each retry of `add_block`.
        """
        self._driver = driver
        self.stream_id = stream_id
        self._run = run
        self._pauses = pauses_s

    def register(self, executor: ExecutorProcess, host: str) -> Mapping[str, Any]:
        """Ask whether the receiver may run here.

        Returns:
            `accepted`, and the stores to which the receiver may copy blocks (`peers`).
        """
        return self._ask(REGISTER_RECEIVER, run=self._run, executor=executor.executor_id, host=host)

    def first_attempt_runs(self, stage: int) -> bool:
        """Ask whether the first attempt of this task, in this stage of Spark, still runs. If so the caller is a speculative copy."""
        return self._ask(FIRST_ATTEMPT, stage=stage)["runs"]

    def deregister(self, message: str, error: BaseException | None, ends: bool = True) -> None:
        """Report that the receiver has stopped, for good (`ends`: the run ends) or for a restart."""
        self._tell(DEREGISTER_RECEIVER, run=self._run, message=message, error=_text(error), ends=ends)

    def add_block(self, block_id: str, stored: ReceivedBlockStoreResult, metadata: Json) -> bool:
        """Send the driver a stored block. Idempotent. A call without an answer is retried, so that a slow driver costs no block.

        Returns:
            Whether the driver has accepted the block. If so its records may be confirmed to their source.

        Raises:
            RpcError: the driver failed, or did not answer the last retry. The block may be in a batch.
        """
        fields = {"run": self._run, **block_fields(block_id, stored, metadata)}
        for pause in self._pauses:
            try:
                return self._ask(ADD_BLOCK, **fields)["added"]
            except RpcUnreachableError as e:
                logger.warning("block %s: the driver has not answered; the next try is in %g s: %s", block_id, pause, e)
            time.sleep(pause)
        return self._ask(ADD_BLOCK, **fields)["added"]

    def on_start_returned(self) -> None:
        """Report that the receiver has started."""
        self._tell(ON_START_RETURNED, run=self._run)

    def report(self, message: str, error: BaseException | None, ends: bool = False) -> None:
        """Report an error of the receiver. `ends`: the run ends by it."""
        self._tell(REPORT_ERROR, run=self._run, message=message, error=_text(error), ends=ends)

    def next_command(self) -> Mapping[str, Any]:
        """Wait some seconds for a command.

        Returns:
            `command` with its arguments, None if there is no command; and the present stores (`peers`).
        """
        return self._ask(NEXT_COMMAND, run=self._run)

    def _ask(self, what: str, **fields: Any) -> dict[str, Any]:
        return of_body(self._driver.ask(what, to_body(stream=self.stream_id, **fields)))

    def _tell(self, what: str, **fields: Any) -> None:
        """Send a message that needs no answer; log an RpcError."""
        try:
            self._ask(what, **fields)
        except RpcError as e:
            logger.warning("%s", e)


def _text(error: BaseException | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {error}"
