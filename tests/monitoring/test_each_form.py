"""A figure that is declared is in each form of monitoring: a new one needs no change there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kstream.batch import BatchInfo, FigureField, Figures, InputFigures, OutputFigures, OutputOperationInfo, StateFigures, StreamInputInfo
from kstream.batch.figures import PARTS, Unit, camel_case, declared, markdown_table
from kstream.batch_time import Seconds, Time
from kstream.checkpoint.driver_status import DriverStatus, status_fields, status_of
from kstream.context.batch_lines import fields_of, line_of
from kstream.context.progress import progress_of
from kstream.context.status import figures_of
from kstream.listener import StreamingListenerBatchCompleted, StreamingListenerOutputOperationCompleted
from kstream.metrics.measured_store import StoreFigures
from kstream.metrics.streaming_source import StreamingSource
from kstream.monitoring.batch_row import row_of
from kstream.monitoring.job_history import JobHistory
from kstream.monitoring.job_snapshot import JobSnapshot
from kstream.testing import ManualClock
from kstream.ui.batch_forms import batch_form, detail_form, operation_form
from tests.metrics.scraped import values_of

MONITORING = Path(__file__).resolve().parents[2] / "docs" / "monitoring.md"
AT = Time(1_800_000_000_000)
VALUE = 5000
DECLARED = [(part, one) for part in PARTS for one in declared(part)]
NAMES = [one.name for _, one in DECLARED]


def with_all(part: type[Figures]) -> Any:
    """The figures of a part, all of them known and different: VALUE for the first, one more for the next."""
    named = {one.name: one for one in declared(part)}
    known = [each.name for each in fields(part) if f"{part.part}_{each.name}" in named]
    return replace(part(), **{name: VALUE + number for number, name in enumerate(known)})


def value_of(part: type[Figures], one: FigureField) -> int:
    return VALUE + list(declared(part)).index(one)


INFO = BatchInfo(
    AT,
    {0: StreamInputInfo(0, 10, figures=with_all(InputFigures))},
    AT.milliseconds,
    AT.milliseconds + 1,
    AT.milliseconds + 3,
    {0: OutputOperationInfo(AT, 0, "saveToKafka", "", AT.milliseconds, AT.milliseconds + 3, None, figures=with_all(OutputFigures))},
    state=with_all(StateFigures),
)
UNKNOWN = replace(
    INFO,
    inputs={0: StreamInputInfo(0, 10)},
    outputs={0: replace(INFO.outputs[0], figures=OutputFigures())},
    state=StateFigures(),
)


def status(info: BatchInfo) -> DriverStatus:
    return DriverStatus("orders", 1, "host", 1, 0, 0, Seconds(1), recent=(figures_of(info),))


def metrics(infos: Sequence[BatchInfo]) -> dict[str, float]:
    """The metrics after these batches, without their labels."""
    history = JobHistory(ManualClock(0))
    for info in infos:
        history.onOutputOperationCompleted(StreamingListenerOutputOperationCompleted(info.outputs[0]))
        history.onBatchCompleted(StreamingListenerBatchCompleted(info))
    registry = CollectorRegistry()
    registry.register(StreamingSource(lambda: JobSnapshot(status(INFO), history.snapshot()), StoreFigures(), 10))
    return {re.sub(r"\{.*", "", name): value for name, value in values_of(generate_latest(registry).decode()).items()}


def forms(info: BatchInfo) -> dict[str, Any]:
    """What each form has of a batch, by the name of the form."""
    operations = [operation_form(operation) for operation in info.outputs.values()]
    detail = detail_form(batch_form(row_of(info), "COMPLETED", 1000), info, operations)
    progress = progress_of(info, Seconds(1), "orders")
    return {
        "log": fields_of(info),
        "line": line_of(fields_of(info), Seconds(1)),
        "status": dict(figures_of(info).figures),
        "progress": {InputFigures: progress["sources"][0], StateFigures: progress.get("state", {}), OutputFigures: progress["outputs"][0]},
        "page": {each["name"]: (each["label"], each["unit"], each["value"]) for each in detail["figures"]},
        "parts": {
            InputFigures: {each["name"]: each["value"] for each in detail["inputs"][0]["figures"]},
            OutputFigures: {each["name"]: each["value"] for each in detail["operations"][0]["figures"]},
        },
    }


@pytest.mark.parametrize(("part", "one"), DECLARED, ids=NAMES)
def test_a_declared_figure_is_in_each_form_by_its_name(part: type[Figures], one: FigureField) -> None:
    found, value = forms(INFO), value_of(part, one)
    assert found["log"][one.name] == value
    assert one.text(value) in found["line"]
    assert found["status"][one.name] == value
    assert found["progress"][part][one.key] == value
    assert found["page"][camel_case(one.name)] == (one.label, one.unit.value, value)
    assert part is StateFigures or found["parts"][part][camel_case(one.name)] == value


@pytest.mark.parametrize(("part", "one"), DECLARED, ids=NAMES)
def test_its_metric_counts_all_batches_or_shows_the_newest(part: type[Figures], one: FigureField) -> None:
    is_time, value = one.unit is Unit.MILLISECONDS, value_of(part, one)
    name = f"kstream_{one.name.removesuffix('_ms') + '_seconds' if is_time else one.name}{'_total' if one.adds else ''}"
    assert metrics([INFO, UNKNOWN, INFO])[name] == (2 if one.adds else 1) * value / (1000 if is_time else 1)


def test_a_figure_that_is_not_known_is_in_no_form() -> None:
    found = forms(UNKNOWN)
    assert found["progress"][StateFigures] == found["status"] == found["page"] == {}
    assert found["parts"] == {InputFigures: {}, OutputFigures: {}}
    assert not found["log"].keys() & set(NAMES)
    assert not {*found["progress"][InputFigures], *found["progress"][OutputFigures]} & {one.key for _, one in DECLARED}
    assert [name for name in metrics([UNKNOWN]) for one in NAMES if one.removesuffix("_ms") in name] == []


def test_a_figure_of_zero_is_in_the_log_for_machines_and_not_in_the_line() -> None:
    nothing = replace(UNKNOWN, state=StateFigures(written_bytes=0))
    assert fields_of(nothing)["state_written_bytes"] == 0
    assert line_of(fields_of(nothing), Seconds(1)) == line_of(fields_of(UNKNOWN), Seconds(1))


def test_the_status_record_keeps_the_figures_and_a_record_without_them_has_none() -> None:
    stored = status_fields(status(INFO))
    assert status_of(stored) == status(INFO)
    assert "figures" not in status_fields(status(UNKNOWN))["recent"][0]
    assert status_of(status_fields(status(UNKNOWN))).recent[0].figures == {}


def test_the_table_of_figures_in_the_docs_is_that_of_the_code() -> None:
    table = re.search(r"<!-- figures -->\n(.*?)\n<!-- /figures -->", MONITORING.read_text(), re.DOTALL)
    assert table is not None and table[1] == markdown_table()
