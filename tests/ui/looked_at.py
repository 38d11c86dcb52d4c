"""A driver of the harness with a page and with metrics, as a context watches its engine."""

from __future__ import annotations

from typing import Any

from kstream.conf import Settings
from kstream.context.observers import Observers
from kstream.metrics.settings import METRICS_PORT
from kstream.ui.settings import UI_ENABLED, UI_PORT
from tests.harness import Driver, World
from tests.metrics.scraped import scrape
from tests.ui.asked import Reply, ask

STREAMING = "/api/v1/applications/local/streaming/"


class LookedAt:
    """A driver of the harness that is watched as a context watches its engine, with a page."""

    def __init__(self, world: World, conf: dict[str, str] | None = None, driver: Driver | None = None) -> None:
        conf = conf or {}
        self.driver = driver or Driver(world, conf)
        settings = Settings({METRICS_PORT.key: "0", UI_ENABLED.key: "true", UI_PORT.key: "0", **conf})
        interval = self.driver.host.graph.batch_duration
        self.observers = Observers("job", settings, interval, self.driver.clock, self.driver.bus, lambda: 2)

    def start(self) -> LookedAt:
        self.observers.start(self.driver.host.graph, self.driver.store)
        self.observers.opened(self.driver.open())
        self.driver.start()
        return self

    def ask(self, path: str) -> Reply:
        assert self.observers.ui_url is not None
        return ask(int(self.observers.ui_url.rstrip("/").rpartition(":")[2]), path)

    def get(self, what: str) -> Any:
        """The JSON of an answer about the application."""
        reply = self.ask(STREAMING + what)
        assert reply.status == 200, reply
        return reply.json

    def scrape(self) -> dict[str, float]:
        assert self.observers.metrics_url is not None
        return scrape(self.observers.metrics_url)

    def stop(self) -> None:
        self.driver.stop()
        self.observers.ended("gracefully")
