"""What the runner of receivers waits for, without Spark."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kstream.spark import receiver_runner
from kstream.spark.receiver_runner import SparkReceiverRunner
from tests.harness import PATIENCE


def test_a_start_that_waits_for_a_cluster_to_give_executors_gives_up_when_a_stop_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start holds the context's lock, and the stop, SIGTERM's too, waits for that."""
    looked = threading.Event()

    def cores(_sc: Any) -> int:
        looked.set()
        return 0

    monkeypatch.setattr(receiver_runner, "total_cores", cores)
    monkeypatch.setattr(receiver_runner, "is_local", lambda _sc: False)
    nothing: Any = None
    sc: Any = SimpleNamespace(getConf=dict)
    stop_wanted = threading.Event()
    starting = threading.Thread(target=SparkReceiverRunner(sc, nothing, stop_wanted).check_cores, args=(1,))
    starting.start()
    assert looked.wait(PATIENCE)
    stop_wanted.set()
    starting.join(PATIENCE)
    assert not starting.is_alive()
