"""Questions: waits for the brokers' answers on behalf of the driver's client, and no longer than that makes sense."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any

from kstream_kafka.client.connection_watch import ConnectionWatch

LISTEN_S = 0.05
"""How often, while an answer is waited for, the client is asked what it has to say."""


class Questions:
    """`poll` delivers what waits in the client: errors, statistics, log lines, requests for a token."""

    def __init__(self, watch: ConnectionWatch, poll: Callable[[], object]) -> None:
        self._watch = watch
        self._poll = poll

    def begin(self) -> None:
        """Before anything is asked."""
        self._watch.asked()
        self._poll()

    def blocking(self, ask: Callable[[], Any]) -> Any:
        """The answer to a question that blocks, asked by a thread of its own: the client says what is wrong only to who polls.

        The thread is a daemon, and ends when the question does.
        """
        self.begin()
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(ask())
            except BaseException as e:
                future.set_exception(e)

        threading.Thread(target=run, name="KafkaMetadata", daemon=True).start()
        return self.awaited(future)

    def awaited(self, future: Any) -> Any:
        """Wait for the future and return its result, or raise its error. While it waits, the client says what it has heard.

        Raises:
            KafkaError: the brokers refuse this client, so that no answer can come. Raised as soon as that is known.
        """
        while True:
            try:
                result = future.result(timeout=LISTEN_S)
            except NotYet:
                if future.done():  # the TimeoutError is the answer, or the answer came just now
                    result = future.result()
                    break
                self._poll()
                verdict = self._watch.verdict()
                if verdict is not None:
                    raise verdict from None
            else:
                break
        self._watch.answered()
        return result
