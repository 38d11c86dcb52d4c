"""The table of what works where in docs/compatibility.md is what the last `make matrix` found."""

from __future__ import annotations

from integration.matrix import PAGE, PYSPARKS, Row, stored, table, written_page


def test_the_page_has_the_rows_of_the_last_run() -> None:
    page = PAGE.read_text()
    assert written_page(page, stored()) == page


def test_only_cells_that_are_promised_have_a_row() -> None:
    assert {(row["pyspark"], row["python"]) for row in stored()} <= {(spark, python) for spark, all in PYSPARKS.items() for python in all}


def test_a_row_says_what_works_what_fails_and_what_that_pyspark_has_not() -> None:
    row = Row(pyspark="3.5.9", python="3.11", installs="wheel", checks={"job": "failed KeyError: x", "frames": "ok"})
    rows = table([row]).splitlines()
    assert "| 3.5.9 | 3.11, wheel | fails | works | – | – |" in rows
    assert "| 3.5.9 | 3.10, sdist | not run | not run | not run | not run |" in rows
