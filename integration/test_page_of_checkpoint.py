"""`kstream page` in a terminal, on checkpoints in S3 and HDFS, of which it knows nothing but the URL; and its page in a browser."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from integration.browser import Browser
from integration.hdfs_cluster import Hdfs
from integration.s3_server import S3Process
from kstream.checkpoint.driver_status import write_status
from kstream.cli.exit_codes import ReadingCode
from kstream.http.http_server import HttpServer
from kstream.spark.checkpoint_store import open_checkpoint
from kstream.testing import ManualClock
from kstream.ui.checkpoint_source import CheckpointSource
from kstream.ui.page_site import page_server
from tests.cli.page_process import address, end, get, page
from tests.harness import World
from tests.ui.left_checkpoint import FAILED, FINE, PENDING, leave, ranges_of, status


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["hdfs", "s3"])
def test_the_page_of_a_checkpoint_is_shown_wherever_it_lies(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: Hdfs | S3Process = request.getfixturevalue(kind)
    if isinstance(server, S3Process):
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
    url = server.url(f"page/{uuid.uuid4().hex}")
    leave(World(open_checkpoint(url)))
    with page(url, "--port", "0") as (process, line):
        (application,) = get(f"{address(line)}api/v1/applications")
        streaming = f"{address(line)}api/v1/applications/{application['id']}/streaming/"
        shown = get(streaming + "batches")
        assert [row["batchId"] for row in shown[:3]] == [PENDING, FAILED, FINE] and len(shown) == 7
        assert get(streaming + "statistics")["numLedgerEntries"] == 2
        assert end(process) == (ReadingCode.WELL, "")


@pytest.fixture
def dead() -> Iterator[HttpServer]:
    """The page of a checkpoint whose driver has died."""
    world = World()
    leave(world)
    write_status(world.store, status(PENDING + 500))
    server = page_server("127.0.0.1", 0, CheckpointSource(world.store, ranges_of, "0.1.0", 500, clock=ManualClock(PENDING + 200_000)))
    server.start()
    yield server
    server.stop()


@pytest.mark.browser
@pytest.mark.timeout(180)
def test_in_a_browser_the_page_shows_what_a_checkpoint_knows_and_names_what_it_does_not(browser: Browser, dead: HttpServer) -> None:
    shown = browser.page()
    expected = {
        "": ["did not say that it ended", "the checkpoint, not a driver"],
        f"batch/{FAILED}": [f"[20] in batch {FAILED}", "pprint at job.py:7"],
        "decisions": ["stream 0 has lost log/0 [8, 10): retention, removed too early"],
        "ledger": ["log-0@5 left out as asked for by me"],
        "lag": ["17 records behind, how long they wait is not known · in which partitions is not known"],
        "receivers": ["A checkpoint does not know the receivers"],
        "settings": ["A checkpoint does not know the settings"],
    }
    for view, texts in expected.items():
        shown.open(f"{dead.root}#/{view}")
        for text in texts:
            shown.wait_text("main", text)
        said = shown.text("main")
        assert not [wrong for wrong in ("No partition.", "has no receiver", "have their defaults") if wrong in said]
    assert shown.seen.problems == []
