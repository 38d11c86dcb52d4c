"""AdminRequests: the wait for the responses to the driver's requests."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from kstream_kafka.client.connection_watch import ConnectionWatch
from kstream_kafka.client.own_thread import begun

T = TypeVar("T")
SETTLE_MS = 30_000
"""Milliseconds after an outage in which a missing topic is not unknown. Brokers that have just come back may not know all topics yet."""
LATE_MS = 5_000
"""Milliseconds from which on an answer is late: the brokers were away meanwhile."""
POLL_S = 0.05
"""Seconds between two polls of the client while a request waits for its response."""


class AdminRequests:
    """Waits for the responses to the driver's requests, and stops as soon as no response can come. Not thread-safe: one thread at a time.

    It remembers the last moment of an outage: a request that got no response, or a late one.

    confluent_kafka delivers errors, statistics, log lines and token requests only to a thread that polls. So each wait polls the client.
    """

    def __init__(self, watch: ConnectionWatch, poll: Callable[[], object], monotonic_ms: Callable[[], int]) -> None:
        """Wait for the requests of one client.

        Args:
            watch: the watch of the client's connection errors.
            poll: delivers the client's events. Must not block.
            monotonic_ms: a monotonic clock in ms.
        """
        self._watch = watch
        self._poll = poll
        self._monotonic_ms = monotonic_ms
        self._asked_ms = 0
        self._outage_ms: int | None = None

    def on_request(self) -> None:
        """Note that the next request is about to be sent, and poll the client."""
        self._asked_ms = self._monotonic_ms()
        self._watch.on_request()
        self._poll()

    def on_no_response(self) -> None:
        """Note that a request got no response. Any thread."""
        self._outage_ms = self._monotonic_ms()

    @property
    def is_after_outage(self) -> bool:
        """Whether brokers did not answer within the last SETTLE_MS."""
        return self._outage_ms is not None and self._monotonic_ms() - self._outage_ms < SETTLE_MS

    def run_blocking(self, request: Callable[[], T]) -> T:
        """Run a blocking request in a daemon thread, and wait for it.

        If `KafkaError` ends the wait, the thread and its request are abandoned.

        Returns:
            The result of the call.

        Raises:
            KafkaError: the brokers refuse this client, so no response can come.
            Exception: the error of the call.
        """
        self.on_request()
        return self.await_result(begun(request, "KafkaMetadata"))

    def await_result(self, future: Any) -> Any:
        """Wait for a future. Blocks, and polls the client meanwhile.

        Returns:
            The result of the future.

        Raises:
            KafkaError: the brokers refuse this client, so no response can come. Raised as soon as that is known.
            Exception: the error of the future, mostly a KafkaException of confluent_kafka.
        """
        while True:
            try:
                result = future.result(timeout=POLL_S)
            except FutureTimeoutError:
                if future.done():  # the TimeoutError is the result, or the result came just now
                    result = future.result()
                    break
                self._poll()
                fatal = self._watch.fatal_error()
                if fatal is not None:
                    raise fatal from None
            else:
                break
        self._watch.on_response()
        if self._monotonic_ms() - self._asked_ms >= LATE_MS:
            self.on_no_response()
        return result
