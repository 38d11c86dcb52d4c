"""The page from its start to its stop: what it adds to a context it takes away."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kstream.batch_time import Duration
from kstream.checkpoint.driver_status import DriverStatus
from kstream.conf import Settings
from kstream.errors import ConfigurationError
from kstream.listener import StreamingListenerBus
from kstream.monitoring.batch_history import KeptBatches
from kstream.monitoring.job_history import JobHistory
from kstream.monitoring.job_snapshot import JobSnapshot
from kstream.testing import ManualClock
from kstream.ui.decisions import Decisions
from kstream.ui.driver_source import SparkLinks
from kstream.ui.ui_system import UiSystem
from tests.ui.asked import ask
from tests.ui.infos import info_of, run_through

STATUS = DriverStatus("orders", 3, "host-1", 4711, 1_000, 60_000, Duration(1000))


@pytest.fixture
def bus() -> StreamingListenerBus:
    return StreamingListenerBus()


@pytest.fixture
def history(bus: StreamingListenerBus) -> JobHistory:
    made = JobHistory(ManualClock(0))
    bus.add(made)
    return made


@pytest.fixture
def page(bus: StreamingListenerBus, history: JobHistory) -> Iterator[UiSystem]:
    made = UiSystem(Settings({"spark.streaming.kstream.ui.port": "0"}), (), Duration(1000), ManualClock(0), bus, history, "0.1.0")
    yield made
    made.stop()


def started(page: UiSystem) -> UiSystem:
    page.start(lambda: JobSnapshot(STATUS, JobHistory(ManualClock(0)).snapshot()), dict, None, SparkLinks("local"))
    return page


def handlers() -> list[logging.Handler]:
    return [handler for name in ("kstream", "kstream_kafka") for handler in logging.getLogger(name).handlers]


def test_a_start_adds_the_progress_listener_and_a_stop_removes_it(page: UiSystem, bus: StreamingListenerBus, history: JobHistory) -> None:
    """Spark behaviour SC11."""
    before = handlers()
    started(page)
    assert [type(listener) for listener in bus._listeners] == [JobHistory, Decisions] and len(handlers()) == len(before) + 2
    run_through(history, info_of(1000))
    assert list(history.snapshot().batches.rows) == [1000]
    page.stop()
    run_through(history, info_of(2000))
    assert history.snapshot().batches == KeptBatches()
    assert bus._listeners == [history] and handlers() == before and page.url is None
    page.stop()  # a second time does nothing


def test_what_was_never_started_is_stopped_without_harm(page: UiSystem, bus: StreamingListenerBus, history: JobHistory) -> None:
    assert page.url is None
    page.stop()
    assert bus._listeners == [history]


def test_a_page_that_is_refused_its_port_leaves_nothing(bus: StreamingListenerBus, history: JobHistory) -> None:
    before = handlers()
    refused = UiSystem(Settings({"spark.streaming.kstream.ui.port": "70000"}), (), Duration(1000), ManualClock(0), bus, history, "0.1.0")
    with pytest.raises(ConfigurationError, match=r"spark\.streaming\.kstream\.ui\.port"):
        started(refused)
    assert bus._listeners == [history] and handlers() == before


def test_its_answers_have_the_version_and_the_application(page: UiSystem) -> None:
    url = started(page).url
    assert url is not None
    port = int(url.rstrip("/").rpartition(":")[2])
    assert ask(port, "/api/v1/applications").json == [{"id": "local", "name": "orders"}]
    assert ask(port, "/api/v1/applications/local/streaming/statistics").json["version"] == "0.1.0"
