"""Calls in threads of their own: librdkafka may block beyond any time-out, and then only the thread waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def begun(call: Callable[[], T], name: str) -> Future[T]:
    """Run a call in a thread of this name, which does not keep the process alive. Return its result to come."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as e:
            future.set_exception(e)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
