"""The README says what the code does."""

from __future__ import annotations

from pathlib import Path

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()


def test_what_does_not_work_yet_is_named() -> None:
    assert "Structured Streaming and continuous processing" in README
