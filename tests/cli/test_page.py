"""`kstream page` as a process: the page of a checkpoint in a browser's place, and one line for what cannot be shown."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kstream.cli import inputs, main
from kstream.cli.exit_codes import ReadingCode
from kstream.errors import StorageError
from kstream.storage import LocalFileStore
from tests.cli.page_process import address, end, get, page
from tests.cli.written_checkpoints import at, write_checkpoint
from tests.harness import World
from tests.stores import WrappedStore
from tests.ui.left_checkpoint import FAILED, FINE, leave


def test_the_page_of_a_checkpoint_is_answered_without_pyspark_and_java_until_ctrl_c(tmp_path: Path) -> None:
    leave(World(LocalFileStore(tmp_path / "orders")))
    for name in ("pyspark", "pyarrow", "py4j", "prometheus_client"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not installed')\n")
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"}
    with page(str(tmp_path / "orders"), "--port", "0", environment=environment) as (process, line):
        place = address(line)
        assert line == f"the page of {tmp_path / 'orders'} is at {place} until Ctrl-C"
        html = get(place)
        assert "<script" in html and "page.js" in html
        (application,) = get(f"{place}api/v1/applications")
        assert application["name"] == "orders"
        streaming = f"{place}api/v1/applications/{application['id']}/streaming/"
        assert get(streaming + "statistics")["source"] == "checkpoint"
        assert [row["batchId"] for row in get(streaming + "batches?status=failed&limit=1")] == [FAILED]
        batch = get(f"{streaming}batches/{FINE}")
        assert batch["inputs"][0]["numRecords"] == 2 and batch["operations"] == get(f"{streaming}batches/{FINE}/operations")
        for part in ("timeline", "receivers", "lag", "decisions", "ledger", "settings"):
            assert get(streaming + part) is not None
        assert end(process) == (ReadingCode.WELL, "")


def test_kafka_ranges_are_shown_by_topic_and_partition(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    with page(str(tmp_path), "--port", "0", "--last", "4") as (_, line):
        streaming = f"{address(line)}api/v1/applications/{get(address(line) + 'api/v1/applications')[0]['id']}/streaming/"
        assert [row["batchId"] for row in get(streaming + "batches")] == [at(n).milliseconds for n in (5, 3, 2)], "4 is a tombstone"
        (source,) = get(f"{streaming}batches/{at(2).milliseconds}")["inputs"]
    assert source["description"] == "stream 0 (orders)"
    assert [tuple(row.values()) for row in source["offsets"]] == [
        ("orders", 0, 10, 15, None),
        ("orders", 1, 10, 17, None),
        ("orders", 2, 7, 7, None),
    ]


def test_for_other_machines_a_token_is_needed_and_made(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    with page(str(tmp_path), "--port", "0", "--host", "0.0.0.0") as (process, line):
        port, token = re.search(r":(\d+)/\?token=(\S+)", line).groups()  # pyright: ignore[reportOptionalMemberAccess]
        place = f"http://127.0.0.1:{port}/"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(place)
        assert "page.js" in get(place, Authorization=f"Bearer {token}")
        assert end(process)[0] == ReadingCode.WELL
    with page(str(tmp_path), "--port", "0", environment={"KSTREAM_PAGE_TOKEN": "given"}) as (_, line):
        assert "token" not in line
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(address(line))
        assert "page.js" in get(address(line), Authorization="Bearer given")


# -- what cannot be shown


def refused(*options: str) -> str:
    """The one line of a command that shows nothing; its exit code says so."""
    result = CliRunner().invoke(main, ["page", *options])
    assert result.exit_code == ReadingCode.UNREADABLE, result.output
    (line,) = result.stderr.splitlines()
    return line


def test_a_place_without_a_checkpoint_is_one_line(tmp_path: Path) -> None:
    assert "there is no checkpoint in" in refused(str(tmp_path))


def test_a_damaged_checkpoint_is_one_line_that_names_the_record(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    plan = sorted((tmp_path / "plans").iterdir())[-1]
    plan.write_bytes(plan.read_bytes()[:-1])
    assert str(plan) in refused(str(tmp_path))


class Away(WrappedStore):
    """A store that does not answer."""

    def _call(self, verb: str, name: str, action: Callable[[], Any], size: int = 0) -> Any:
        raise StorageError("s3://bucket/orders does not answer: timed out\nin 5 s", path=name)


def test_a_store_that_is_away_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "open_checkpoint", lambda path: Away(LocalFileStore(tmp_path)))
    assert refused("s3://bucket/orders") == "kstream: s3://bucket/orders does not answer: timed out in 5 s"


def test_a_port_that_is_taken_or_cannot_be_had_is_one_line(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"port {port} of 127.0.0.1 is taken" in refused(str(tmp_path), "--port", str(port))
    assert "cannot be opened on 203.0.113.1:0" in refused(str(tmp_path), "--host", "203.0.113.1", "--port", "0")
