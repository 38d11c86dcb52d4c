"""ReceiverSupervisor: runs one receiver in this process – starts it, starts it again, stops it (Spark's `ReceiverSupervisor.scala`)."""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from kstream.batch.plan import Json
from kstream.clock import Clock
from kstream.loop import THREADS, Runtime
from kstream.receiver.block_generator import BlockGenerator, BlockGeneratorListener
from kstream.receiver.receiver import Receiver

logger = logging.getLogger(__name__)


class BlockSink(Protocol):
    """Where what the receiver stores goes. Any thread."""

    def add(self, record: Any, /) -> None: ...
    def add_each(self, records: Iterable[Any], /) -> None: ...
    def add_all(self, records: Iterable[Any], metadata: Json, /) -> None:
        """As a block of their own."""
        ...

    def add_bytes(self, pickled: bytes, metadata: Json, /) -> None:
        """A pickled list of records, as a block of its own."""
        ...

    def new_generator(self, listener: BlockGeneratorListener, /) -> BlockGenerator: ...
    def close(self) -> None:
        """Nothing more comes in; what came is kept when this returns."""
        ...


class ReceiverState(enum.Enum):
    """INITIALIZED → STARTED ⇄ STOPPED."""

    INITIALIZED = "initialized"
    STARTED = "started"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ReceiverNews:
    """What became of a receiver, for listeners. `kind`: "started", "stopped" (`for_good`, or for a restart) or "error" (it goes on)."""

    kind: str
    message: str = ""
    error: BaseException | None = None
    for_good: bool = False


class ReceiverSupervisor:
    """One for each receiver and driver. Each start and each restart is a thread of its own, which ends when `onStart` has returned: one
    that blocks holds up nothing else. `tell` hears of starts, stops and errors, on any thread.
    """

    def __init__(
        self, receiver: Receiver, stream_id: int, blocks: BlockSink, clock: Clock, restart_delay_ms: int,
        tell: Callable[[ReceiverNews], None] = lambda _news: None, runtime: Runtime = THREADS,
    ) -> None:  # fmt: skip
        self._receiver = receiver
        self._stream_id = stream_id
        self._blocks = blocks
        self._clock = clock
        self._delay = restart_delay_ms
        self._tell = tell
        self._runtime = runtime
        self._state = ReceiverState.INITIALIZED
        self._restarting = False
        self._over = runtime.event()
        self._lock = threading.Lock()
        receiver.attach(self)

    # -- for the stream

    def start(self) -> None:
        """Returns at once."""
        self._spawn(self._start_receiver, "start")

    def stop(self, timeout: float) -> bool:
        """Stops the receiver for good: its `onStop` may take `timeout` seconds. Whether it has returned by then. May be called again.

        What it stores until then is kept; from then on nothing can be stored.
        """
        self._over.set()
        done = self._runtime.event()

        def stop() -> None:
            self._stop_receiver("Stopped by driver", None)
            done.set()

        self._spawn(stop, "stop")
        in_time = done.wait(timeout)
        if not in_time:
            logger.warning("onStop of the receiver of stream %d did not return within %s s", self._stream_id, timeout)
        self._blocks.close()
        return in_time

    def _spawn(self, work: Callable[[], None], what: str) -> None:
        self._runtime.thread(work, f"Receiver-{self._stream_id}-{what}").start()

    # -- for the receiver

    @property
    def stream_id(self) -> int:
        return self._stream_id

    def store(self, record: Any) -> None:
        self._blocks.add(record)

    def store_each(self, records: Iterable[Any]) -> None:
        self._blocks.add_each(records)

    def store_all(self, records: Iterable[Any], metadata: Json = None) -> None:
        self._blocks.add_all(records, metadata)

    def store_bytes(self, pickled: bytes, metadata: Json = None) -> None:
        self._blocks.add_bytes(pickled, metadata)

    def create_block_generator(self, listener: BlockGeneratorListener) -> BlockGenerator:
        return self._blocks.new_generator(listener)

    def report_error(self, message: str, error: BaseException | None) -> None:
        logger.warning("Reported error by receiver for stream %d: %s", self._stream_id, _said(message, error))
        self._tell(ReceiverNews("error", message, error))

    def restart(self, message: str, error: BaseException | None, delay_ms: int | None) -> None:
        with self._lock:
            if self._restarting or self._over.is_set():
                return
            self._restarting = True
        delay = self._delay if delay_ms is None else delay_ms
        self._spawn(lambda: self._start_again(message, error, delay), "restart")

    def stop_self(self, message: str, error: BaseException | None) -> None:
        self._over.set()
        self._stop_receiver(message, error)

    def is_started(self) -> bool:
        return self._state is ReceiverState.STARTED

    def is_stopped(self) -> bool:
        return self._state is ReceiverState.STOPPED

    # -- threads of its own

    def _start_again(self, reason: str, error: BaseException | None, delay_ms: int) -> None:
        message = f"Restarting receiver with delay {delay_ms} ms: {reason}"
        logger.warning("%s", _said(message, error))
        self._stop_receiver(message, error)
        until = self._clock.monotonic_ms() + delay_ms
        while (left := until - self._clock.monotonic_ms()) > 0:
            if self._clock.wait(left, self._over):
                return
        self._start_receiver()

    def _start_receiver(self) -> None:
        with self._lock:
            if self._over.is_set():
                return
            self._state, self._restarting = ReceiverState.STARTED, False
        logger.info("Starting receiver %d", self._stream_id)
        self._tell(ReceiverNews("started"))
        try:
            self._receiver.onStart()
        except Exception as e:
            message = f"Error starting receiver {self._stream_id}"
            logger.error("%s", message, exc_info=e)
            self.stop_self(message, e)

    def _stop_receiver(self, message: str, error: BaseException | None) -> None:
        with self._lock:
            was, self._state = self._state, ReceiverState.STOPPED
        if was is not ReceiverState.STARTED:
            return
        logger.info("Stopping receiver %d with message: %s", self._stream_id, _said(message, error))
        try:
            self._receiver.onStop()
        except Exception as e:
            logger.error("Error stopping receiver %d", self._stream_id, exc_info=e)
        self._tell(ReceiverNews("stopped", message, error, self._over.is_set()))


def _said(message: str, error: BaseException | None) -> str:
    return message if error is None else f"{message}: {type(error).__name__}: {error}"
