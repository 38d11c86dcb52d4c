"""The names in a PromQL expression. It knows as much of the language as the expressions of docs/monitoring use."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, ProcessCollector

from kstream.metrics.families import FAMILIES, MetricKind

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_AGGREGATED = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)\s*\(")
_RANGE = re.compile(r"\[[^]]*\]")
_NAME = re.compile(r"(?<![\w$.])([a-zA-Z_:][\w:]*)\b(?!\s*\()")
_KEYWORDS = {"and", "or", "unless", "bool", "offset"}
OF_PROMETHEUS = {"job", "instance"}
"""Labels that Prometheus adds to each series."""


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression names."""
    bare = _RANGE.sub("", _SELECTOR.sub(r"\1", _TEXT.sub('""', expression)))
    return set(_NAME.findall(_GROUPING.sub("", bare))) - _KEYWORDS


def labels_in(expression: str) -> set[str]:
    """The labels by which an expression chooses or groups."""
    bare = _TEXT.sub('""', expression)
    chosen = {label for _, inside in _SELECTOR.findall(bare) for label in re.findall(r"(\w+)\s*[=!]", inside)}
    return chosen | {label.strip() for inside in _GROUPING.findall(bare) for label in inside.split(",") if label.strip()}


def labels_of_each_metric(expression: str) -> dict[str, set[str]]:
    """Each metric of an expression → the labels by which it is chosen, and by which an aggregation over it groups."""
    bare = _TEXT.sub('""', expression)
    found = {name: set[str]() for name in metrics_in(expression)}
    for name, inside in _SELECTOR.findall(bare):
        found[name] |= set(re.findall(r"(\w+)\s*[=!]", inside))
    for match in _AGGREGATED.finditer(bare):
        for name in metrics_in(bare[match.end() : _end_of_parenthesis(bare, match.end())]):
            found[name] |= {label.strip() for label in match[1].split(",")} - {""}
    return found


def _end_of_parenthesis(text: str, begin: int) -> int:
    """Where the parenthesis ends that was opened before `begin`."""
    depth = 1
    for at in range(begin, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at
    raise ValueError(f"a parenthesis is not closed: {text}")


def exported() -> dict[str, set[str]]:
    """Each series that the endpoint can export → its labels, with those that Prometheus adds."""
    found = {"up": {"job", "instance"}}
    for family in FAMILIES:
        labels = {*family.labels, *OF_PROMETHEUS}
        if family.kind is MetricKind.HISTOGRAM:
            found |= {f"{family.name}_bucket": {*labels, "le"}, f"{family.name}_sum": labels, f"{family.name}_count": labels}
        else:
            found[family.name] = labels
    process = ProcessCollector(registry=CollectorRegistry())
    return found | {sample.name: set(OF_PROMETHEUS) for metric in process.collect() for sample in metric.samples}
