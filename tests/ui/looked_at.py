"""A driver of the harness with a page and with metrics, as a context watches its engine."""

from __future__ import annotations

from typing import Any

from kstream.ui.settings import UI_ENABLED, UI_PORT
from tests.harness import Driver, World
from tests.metrics.scraped import Observed
from tests.ui.asked import Reply, ask

STREAMING = "/api/v1/applications/local/streaming/"


class LookedAt(Observed):
    """A driver of the harness that is watched as a context watches its engine, with a page."""

    def __init__(self, world: World, conf: dict[str, str] | None = None, driver: Driver | None = None) -> None:
        super().__init__(world, {UI_ENABLED.key: "true", UI_PORT.key: "0", **(conf or {})}, driver)

    def ask(self, path: str) -> Reply:
        assert self.observers.ui_url is not None
        return ask(int(self.observers.ui_url.rstrip("/").rpartition(":")[2]), path)

    def get(self, what: str) -> Any:
        """The JSON of an answer about the application."""
        reply = self.ask(STREAMING + what)
        assert reply.status == 200, reply
        return reply.json
