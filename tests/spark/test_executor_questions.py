"""What a worker of each executor finds out about the checkpoint and the brokers, for `kstream doctor --spark`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kstream.connectors import ConnectorTools, Finding
from kstream.errors import TransientError
from kstream.spark.executor_questions import ExecutorQuestions, StreamConnection, questions_about
from kstream.storage import LocalFileStore, MemoryFileStore, StorePlace


def test_a_directory_of_the_same_path_that_is_another_one_is_found_out_and_stays_as_it_is(tmp_path: Path) -> None:
    """As on a machine that does not mount what the driver mounts."""
    place = StorePlace(str(tmp_path / "checkpoint"))
    ((name, said),) = ExecutorQuestions(place, "probe-1").answers()
    assert (
        name == "checkpoint"
        and said == f"{tmp_path}/checkpoint/probe-1, which the driver has just written, is not there: it is another directory"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_a_worker_cannot_open_is_told_and_no_error() -> None:
    ((_, said),) = ExecutorQuestions(StorePlace("nix://bucket/x"), "probe-1").answers()
    assert "nix" in said


class Tools(ConnectorTools):
    name = "Test"
    input_kind = "test"

    def examine(self, connection: Mapping[str, Any], data: Mapping[str, Any]) -> list[Finding]:
        if connection["to"] == "away":
            raise TransientError("no answer\nfrom h:1")
        found = Finding("brokers", "ok", "h:1 answer")
        return [found, Finding("read", "failed", "no ACL"), Finding("topics", "warning", "…")] if connection["to"] == "closed" else [found]


def test_the_brokers_are_asked_as_on_the_driver_and_what_fails_is_told() -> None:
    streams = [StreamConnection(n, Tools(), {"to": to}, {}) for n, to in enumerate(("there", "closed", "away"))]
    assert ExecutorQuestions(streams=streams).answers() == [
        ("stream 0", ""),
        ("stream 1", "read: no ACL"),
        ("stream 2", "no answer from h:1"),
    ]


def test_the_driver_leaves_a_file_in_the_checkpoint_for_the_time_of_the_questions_only(tmp_path: Path) -> None:
    with questions_about(LocalFileStore(tmp_path)) as questions:
        assert (tmp_path / questions.probe).exists() and questions.answers() == [("checkpoint", "")]
    assert list(tmp_path.iterdir()) == []


def test_of_a_store_that_the_driver_alone_reads_and_writes_nothing_is_asked() -> None:
    with questions_about(MemoryFileStore("memory://asked")) as questions:
        assert questions.answers() == []
