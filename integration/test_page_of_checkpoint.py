"""`kstream page` in a terminal, on checkpoints in S3 and HDFS, of which the page knows nothing but the URL."""

from __future__ import annotations

import uuid

import pytest

from integration.hdfs_cluster import Hdfs
from integration.s3_server import S3Process
from kstream.cli.exit_codes import ReadingCode
from kstream.spark.checkpoint_store import open_checkpoint
from tests.cli.test_page import address, end, get, page
from tests.harness import World
from tests.ui.left_checkpoint import FAILED, FINE, PENDING, leave


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
