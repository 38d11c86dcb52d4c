"""Spark's progress bar: off in logs, and never against what the user has set."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstream.spark.submit_args import turn_off_progress_bar

OFF = "--conf spark.ui.showConsoleProgress=false"


def submit_args(is_terminal: bool = False, **environ: str) -> str | None:
    turn_off_progress_bar(environ, is_terminal)
    turn_off_progress_bar(environ, is_terminal)
    return environ.get("PYSPARK_SUBMIT_ARGS")


def test_where_standard_error_is_no_terminal_the_next_jvm_shows_no_bar() -> None:
    assert submit_args() == f"{OFF} pyspark-shell"
    assert submit_args(PYSPARK_SUBMIT_ARGS="--master local[2] pyspark-shell") == f"{OFF} --master local[2] pyspark-shell"


def test_on_a_terminal_and_under_spark_submit_nothing_changes() -> None:
    assert submit_args(is_terminal=True) is None
    assert submit_args(PYSPARK_GATEWAY_PORT="1") is None


@pytest.mark.parametrize("value", ["true", "false"])
def test_what_the_user_has_set_stays(value: str, tmp_path: Path) -> None:
    own = f"--conf spark.ui.showConsoleProgress={value} pyspark-shell"
    assert submit_args(PYSPARK_SUBMIT_ARGS=own) == own
    (tmp_path / "spark-defaults.conf").write_text(f"spark.ui.showConsoleProgress  {value}\n")
    assert submit_args(SPARK_CONF_DIR=str(tmp_path)) is None
