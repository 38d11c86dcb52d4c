"""`kstream replay`: what a person reads on the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark import SparkContext

from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta
from kstream.checkpoint.reader import write_meta
from kstream.cli import main, replay
from kstream.context import StreamingContext
from kstream.storage import LocalFileStore


@pytest.mark.parametrize("scheme", ["", "local://"], ids=["a directory", "a store without an exclusive create"])
def test_a_replay_gives_no_warning_about_a_context_that_it_never_starts(
    scheme: str, sc: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_meta(LocalFileStore(tmp_path), Meta(Time(0), Duration(1000)))
    stopped: list[bool] = []
    monkeypatch.setattr(sc, "stop", lambda: stopped.append(True))  # the suite's Spark must live on
    monkeypatch.setattr(replay, "load_setup", lambda _job: test_a_replay_gives_no_warning_about_a_context_that_it_never_starts)
    monkeypatch.setattr(StreamingContext, "getOrCreate", lambda _path, _setup: StreamingContext(sc, 1))
    command = ["replay", "jobs:setup", "--checkpoint", f"{scheme}{tmp_path}", "--from", "1000", "--to", "1000", "--sink", "same"]
    result = CliRunner().invoke(main, command)
    assert "holds no batch of 1000 to 1000 ms" in result.output and result.exit_code == 1
    assert "has not been started" not in result.output and stopped == [True]
