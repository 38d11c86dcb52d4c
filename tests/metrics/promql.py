"""The names in a PromQL expression. It knows as much of the language as the expressions of docs/monitoring use."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, ProcessCollector

from kstream.metrics.families import FAMILIES, Kind

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_RANGE = re.compile(r"\[[^]]*\]")
_NAME = re.compile(r"(?<![\w$.])([a-zA-Z_:][\w:]*)\b(?!\s*\()")
_KEYWORDS = {"and", "or", "unless", "bool", "offset"}
OF_PROMETHEUS = {"job", "instance", "le"}
"""Labels that Prometheus adds to each series, and that of a bucket."""


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression names."""
    bare = _RANGE.sub("", _SELECTOR.sub(r"\1", _TEXT.sub('""', expression)))
    return set(_NAME.findall(_GROUPING.sub("", bare))) - _KEYWORDS


def labels_in(expression: str) -> set[str]:
    """The labels by which an expression chooses or groups."""
    bare = _TEXT.sub('""', expression)
    chosen = {label for _, inside in _SELECTOR.findall(bare) for label in re.findall(r"(\w+)\s*[=!]", inside)}
    return chosen | {label.strip() for inside in _GROUPING.findall(bare) for label in inside.split(",") if label.strip()}


def exported() -> dict[str, set[str]]:
    """Each series that the endpoint can export → its labels, with those that Prometheus adds."""
    found = {"up": {"job", "instance"}}
    for family in FAMILIES:
        names = [f"{family.name}{end}" for end in ("_bucket", "_sum", "_count")] if family.kind is Kind.HISTOGRAM else [family.name]
        found |= {name: {*family.labels, *OF_PROMETHEUS} for name in names}
    process = ProcessCollector(registry=CollectorRegistry())
    return found | {sample.name: set(OF_PROMETHEUS) for metric in process.collect() for sample in metric.samples}
