"""The board and the alerts of docs/monitoring name only what the endpoint exports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kstream.metrics.settings import METRICS_PORT
from tests.metrics.promql import exported, labels_in, labels_of_each_metric, metrics_in

DOCS = Path(__file__).resolve().parents[2] / "docs"
BOARD: dict[str, Any] = json.loads((DOCS / "monitoring" / "grafana.json").read_text())
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((DOCS / "monitoring" / "rules.yaml").read_text())["groups"] for rule in group["rules"]
]
PANELS: list[dict[str, Any]] = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [
    *((rule["alert"], rule["expr"]) for rule in RULES),
    *((panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]),
]


def test_the_guide_for_a_night_has_a_row_for_each_alert() -> None:
    page = (DOCS / "night.md").read_text()
    assert {rule["alert"] for rule in RULES} == set(re.findall(r"^\| `(KStream\w+)` \|", page, re.MULTILINE))


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=[where for where, _ in EXPRESSIONS])
def test_an_expression_names_only_metrics_that_the_endpoint_exports_and_their_labels(where: str, expression: str) -> None:
    known, named = exported(), metrics_in(expression)
    assert named and named <= known.keys()
    for name, labels in labels_of_each_metric(expression).items():
        assert labels <= known[name], name
    assert labels_in(expression) <= set().union(*(known[name] for name in named)), "those of on and ignoring are of either side"


def test_the_names_in_an_expression_are_found() -> None:
    """Else the test above could not fail."""
    rate = 'sum by (job, le) (rate(kstream_a_bucket{job=~"$job", x!="kstream_b"}[$__rate_interval]))'
    expression = f"{rate} > on (z) 2 * kstream_c and time() - up > 3e2"
    assert metrics_in(expression) == {"kstream_a_bucket", "kstream_c", "up"}
    assert labels_in(expression) == {"job", "le", "x", "z"}
    assert labels_of_each_metric(expression) == {"kstream_a_bucket": {"job", "le", "x"}, "kstream_c": set(), "up": set()}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_and_what_to_do_with_labels_that_are_there(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"KStream[A-Za-z]+", rule["alert"])
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description"}
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    known = exported()
    assert used <= set().union(*(known[name] for name in metrics_in(rule["expr"])))


def test_the_table_of_alerts_in_the_docs_has_each_alert() -> None:
    rows = re.findall(r"^\| `(KStream\w+)` \|", (DOCS / "monitoring.md").read_text(), re.MULTILINE)
    assert rows == [rule["alert"] for rule in RULES]


def test_a_panel_has_a_title_of_its_own_a_description_and_a_unit() -> None:
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles) > 20
    for panel in PANELS:
        assert panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"]
    numbers = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_panels_do_not_overlap_and_stay_on_the_board() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24
        taken |= cells


def test_the_board_asks_the_prometheus_that_is_chosen_and_the_variables_that_it_has() -> None:
    names = {variable["name"] for variable in BOARD["templating"]["list"]}
    assert {panel["datasource"]["uid"] for panel in PANELS} == {"${datasource}"} and "datasource" in names
    used = {name for _, expression in EXPRESSIONS for name in re.findall(r"\$(\w+)", expression)}
    assert used <= {*names, "__rate_interval"}


def test_the_example_of_a_scrape_has_the_port_of_the_docs() -> None:
    example = yaml.safe_load((DOCS / "monitoring" / "prometheus.yaml").read_text())
    (target,) = example["scrape_configs"][0]["static_configs"][0]["targets"]
    assert f"metrics.port={target.rpartition(':')[2]}" in (DOCS / "monitoring.md").read_text()
    assert example["rule_files"] == ["rules.yaml"]
    assert METRICS_PORT.key == "spark.streaming.kstream.metrics.port"
