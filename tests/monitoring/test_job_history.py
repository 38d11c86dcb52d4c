"""What is kept of a job: the last batches, the last error, the totals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kstream.batch import OutputOperationInfo
from kstream.batch_time import Time
from kstream.checkpoint.driver_status import LastError
from kstream.listener import StreamingListenerBatchCompleted, StreamingListenerOutputOperationCompleted
from kstream.monitoring.job_history import KEPT, JobHistory
from kstream.testing import ManualClock
from tests.harness import START
from tests.ui.infos import info_of


def test_only_the_last_batches_are_kept() -> None:
    history = JobHistory(ManualClock(START))
    assert not history.snapshot().recent
    ended = [info_of(1000 * n) for n in range(KEPT + 5)]
    for info in ended:
        history.onBatchCompleted(StreamingListenerBatchCompleted(info))
    assert list(history.snapshot().recent) == ended[5:] and history.snapshot().ended == {"succeeded": KEPT + 5, "failed": 0}


def test_an_error_of_no_batch_is_told_with_the_step_that_failed() -> None:
    history = JobHistory(ManualClock(START))
    history.note_error("the batch was not planned", OSError("no broker"))
    assert history.snapshot().last_error == LastError(START, "the batch was not planned: OSError: no broker")


class SwitchingLock:
    """A lock: each time a thread releases it, another thread may run, which is `then`."""

    def __init__(self, then: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self.then: Callable[[], None] | None = then

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()
        then, self.then = self.then, None
        if then is not None:
            then()


def test_the_error_of_an_output_that_comes_as_an_event_meanwhile_is_kept_with_its_batch() -> None:
    """It names the batch; the same error without it says less."""
    history: Any = JobHistory(ManualClock(START))
    info = OutputOperationInfo(Time(START), 0, "op", "", 1, 2, "Traceback", "ValueError: boom")
    history._lock = SwitchingLock(lambda: history.onOutputOperationCompleted(StreamingListenerOutputOperationCompleted(info)))
    history.note_error("Error running job", ValueError("boom"))
    assert history.snapshot().last_error.batch == Time(START)
