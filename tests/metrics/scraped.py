"""What a scrape shows, by name and labels, as a Prometheus reads it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any, TypeVar

from prometheus_client.parser import text_string_to_metric_families

from kstream.conf import Settings
from kstream.context.observers import Observers
from kstream.metrics.settings import METRICS_PORT
from tests.harness import Driver, World

T = TypeVar("T", bound="Observed")


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read()


def values_of(text: str) -> dict[str, float]:
    """`name{label="value"}` → value, the labels in their order in the alphabet."""
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {name_of(sample.name, sample.labels): sample.value for sample in samples}


def name_of(name: str, labels: dict[str, str]) -> str:
    shown = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{shown}}}" if shown else name


def scrape(url: str) -> dict[str, float]:
    """The values at `/metrics`, which are those at `/json`, too."""
    values = values_of(fetch(url).decode())
    families: dict[str, Any] = json.loads(fetch(url.replace("/metrics", "/json")))
    same = {name_of(s["name"], s["labels"]): s["value"] for family in families.values() for s in family["samples"]}
    moving = ("process_", "kstream_plan_log")
    assert {k: v for k, v in same.items() if not k.startswith(moving)} == {k: v for k, v in values.items() if not k.startswith(moving)}
    return values


class Observed:
    """A driver of the harness that is watched as a context watches its engine."""

    def __init__(self, world: World, conf: dict[str, str] | None = None, driver: Driver | None = None) -> None:
        self.driver = driver or Driver(world, conf)
        settings = Settings({METRICS_PORT.key: "0", **(conf or {})})
        interval = self.driver.host.graph.batch_duration
        self.observers = Observers("job", settings, interval, self.driver.clock, self.driver.bus, lambda: 2)

    def start(self: T) -> T:
        self.observers.start(self.driver.host.graph, self.driver.store)
        self.observers.opened(self.driver.open())
        self.driver.start()
        return self

    def scrape(self) -> dict[str, float]:
        assert self.observers.metrics_url is not None
        return scrape(self.observers.metrics_url)

    def stop(self) -> None:
        self.driver.stop()
        self.observers.ended("gracefully")
