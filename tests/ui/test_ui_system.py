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
from kstream.testing import ManualClock
from kstream.ui.driver_source import DriverFigures, SparkLinks
from kstream.ui.ui_system import UiSystem
from tests.ui.asked import ask

STATUS = DriverStatus("orders", 3, "host-1", 4711, 1_000, 60_000, Duration(1000))


@pytest.fixture
def bus() -> StreamingListenerBus:
    return StreamingListenerBus()


@pytest.fixture
def page(bus: StreamingListenerBus) -> Iterator[UiSystem]:
    made = UiSystem(Settings({"spark.streaming.kstream.ui.port": "0"}), (), Duration(1000), ManualClock(0), bus, "0.1.0")
    yield made
    made.stop()


def started(page: UiSystem) -> UiSystem:
    page.start(lambda: STATUS, DriverFigures, dict, None, SparkLinks("local"))
    return page


def handlers() -> list[logging.Handler]:
    return [handler for name in ("kstream", "kstream_kafka") for handler in logging.getLogger(name).handlers]


def test_a_start_adds_the_progress_listener_and_a_stop_removes_it(page: UiSystem, bus: StreamingListenerBus) -> None:
    """Spark behaviour SC11."""
    before = handlers()
    started(page)
    names = [type(listener).__name__ for listener in bus._listeners]
    assert names == ["StreamingJobProgressListener", "Decisions"] and len(handlers()) == len(before) + 2
    page.stop()
    assert bus._listeners == [] and handlers() == before and page.url is None
    page.stop()  # a second time does nothing


def test_what_was_never_started_is_stopped_without_harm(page: UiSystem, bus: StreamingListenerBus) -> None:
    assert page.url is None
    page.stop()
    assert bus._listeners == []


def test_a_page_that_is_refused_its_port_leaves_nothing(bus: StreamingListenerBus) -> None:
    before = handlers()
    refused = UiSystem(Settings({"spark.streaming.kstream.ui.port": "70000"}), (), Duration(1000), ManualClock(0), bus, "0.1.0")
    with pytest.raises(ConfigurationError, match=r"spark\.streaming\.kstream\.ui\.port"):
        started(refused)
    assert bus._listeners == [] and handlers() == before


def test_its_answers_have_the_version_and_the_application(page: UiSystem) -> None:
    url = started(page).url
    assert url is not None
    port = int(url.rstrip("/").rpartition(":")[2])
    assert ask(port, "/api/v1/applications").json == [{"id": "local", "name": "orders"}]
    assert ask(port, "/api/v1/applications/local/streaming/statistics").json["version"] == "0.1.0"
