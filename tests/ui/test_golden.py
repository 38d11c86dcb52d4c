"""The bytes of the page's JSON for a job with failures."""

from __future__ import annotations

from tests.ui.golden import GOLDEN, run, shown


def test_the_json_of_a_job_with_failures() -> None:
    """After a wanted change of the forms `python -m tests.ui.golden` writes the file anew."""
    assert shown(run()) == GOLDEN.read_text()
