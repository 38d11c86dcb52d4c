"""The page comes with the start of a context and goes with its stop; it leads to Spark's jobs."""

from __future__ import annotations

import logging
import re
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from kstream.errors import ConfigurationError, PortTakenError
from tests.streams import Stream, numbers, refusing_to_start
from tests.ui.asked import Reply, ask

ENABLED, PORT, HOST, TOKEN = (f"spark.streaming.kstream.ui.{name}" for name in ("enabled", "port", "host", "token"))
Setting = Callable[[str, str], None]


def running(sc: SparkContext, checkpoint: Path, work: Callable[[Any], object] = lambda rdd: None) -> Stream:
    stream = Stream(sc)
    stream.ssc.checkpoint(str(checkpoint))
    numbers(stream.ssc, 3).foreachRDD(work)
    return stream.start()


def asked(stream: Stream, path: str, headers: dict[str, str] | None = None) -> Reply:
    url = stream.ssc.uiUrl
    assert url is not None
    return ask(int(url.rstrip("/").rpartition(":")[2]), path, headers)


def of_the_page() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "UiServer" in thread.name]


@pytest.fixture
def enabled(setting: Setting) -> Setting:
    setting(ENABLED, "true")
    setting(PORT, "0")
    return setting


def test_without_the_setting_there_is_no_page_and_its_room_is_not_imported(
    sc: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("kstream.ui")]:
        monkeypatch.delitem(sys.modules, name)
    handlers = [list(logging.getLogger(name).handlers) for name in ("kstream", "kstream_kafka")]
    stream = running(sc, tmp_path)
    assert stream.ssc.uiUrl is None and of_the_page() == []
    assert [name for name in sys.modules if name.startswith("kstream.ui")] == []
    assert handlers == [list(logging.getLogger(name).handlers) for name in ("kstream", "kstream_kafka")]
    stream.stop()


def test_a_running_context_shows_its_batches_and_their_jobs_of_spark(
    sc: SparkContext, enabled: Setting, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "kstream"):
        stream = running(sc, tmp_path, lambda rdd: (rdd.count(), rdd.collect()))
    assert f"the page is at {stream.ssc.uiUrl}" in caplog.text
    stream.tick()
    (application,) = asked(stream, "/api/v1/applications").json
    assert application == {"id": sc.applicationId, "name": sc.appName}
    streaming = f"/api/v1/applications/{application['id']}/streaming/"
    last = stream.ssc.lastProgress
    assert last is not None
    batch = asked(stream, f"{streaming}batches/{last['batchId']}").json
    assert (batch["status"], batch["inputSize"]) == ("COMPLETED", 3)
    (operation,) = batch["operations"]
    mine = sc.statusTracker().getJobIdsForGroup(None)
    assert len(operation["jobIds"]) == 2 and set(operation["jobIds"]) <= set(mine)
    assert asked(stream, streaming + "statistics").json["sparkUiUrl"] == sc.uiWebUrl
    status = stream.ssc.status()
    assert status is not None and status.ui_url == stream.ssc.uiUrl
    stream.stop()
    assert stream.ssc.uiUrl is None and of_the_page() == []


def test_a_users_job_keeps_its_own_tags_and_only_they_cancel_it(sc: SparkContext, enabled: Setting, tmp_path: Path) -> None:
    """The tag of the page is one of many: it takes no tag away, and nobody cancels by it."""
    tags: list[set[str]] = []
    sc.addJobTag("of-the-caller")
    try:

        def work(rdd: Any) -> None:
            sc.addJobTag("of-the-job")
            tags.append(set(sc.getJobTags()))
            sc.cancelJobsWithTag("of-another-job")
            rdd.count()

        stream = running(sc, tmp_path, work)
        stream.tick()
        stream.tick()
        times = [progress["batchId"] for progress in stream.ssc.recentProgress]
        streaming = f"/api/v1/applications/{sc.applicationId}/streaming/batches/"
        jobs = [asked(stream, f"{streaming}{time}/operations").json[0]["jobIds"] for time in times]
        assert [len(each) for each in jobs] == [1, 1] and jobs[0] != jobs[1]
        stream.stop()
    finally:
        sc.removeJobTag("of-the-caller")
    for time, seen in zip(times, tags, strict=True):
        assert {"of-the-caller", "of-the-job"} <= seen
        (mine,) = (tag for tag in seen if tag.startswith("kstream-batch-"))
        assert mine.endswith(f"-{time}-0")


def test_without_the_page_jobs_have_no_tag_of_their_batch(sc: SparkContext, tmp_path: Path) -> None:
    tags: list[set[str]] = []
    stream = running(sc, tmp_path, lambda rdd: tags.append(set(sc.getJobTags())))
    stream.tick()
    stream.stop()
    assert not [tag for seen in tags for tag in seen if tag.startswith("kstream-batch-")]


def test_a_page_that_others_reach_makes_a_token_and_logs_it_once(
    sc: SparkContext, enabled: Setting, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    enabled(HOST, "0.0.0.0")
    enabled(TOKEN, "")
    with caplog.at_level(logging.INFO, "kstream"):
        stream = running(sc, tmp_path)
        token = re.findall(r"the page is at http://[^/]+/\?token=([\w-]{32})$", caplog.text, re.MULTILINE)
        assert len(token) == 1
        assert asked(stream, "/").status == 401
        assert asked(stream, "/", {"Authorization": f"Bearer {token[0]}", "Host": "driver-7.example"}).status == 200
        stream.tick()
        stream.stop()
    assert caplog.text.count(token[0]) == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and token[0].encode() in path.read_bytes()]


def test_a_token_of_the_user_is_never_logged_and_needed_on_this_machine_too(
    sc: SparkContext, enabled: Setting, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    enabled(TOKEN, "hunter2")
    with caplog.at_level(logging.DEBUG, "kstream"):
        stream = running(sc, tmp_path)
        assert asked(stream, "/").status == 401
        reply = asked(stream, f"/api/v1/applications/{sc.applicationId}/streaming/settings", {"Authorization": "Bearer hunter2"})
        assert "hunter2" not in reply.body.decode() and {"key", "value"} <= reply.json[0].keys()
        stream.stop()
    assert "hunter2" not in caplog.text


def test_a_port_that_is_taken_fails_the_start_and_fences_nobody(sc: SparkContext, enabled: Setting, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        enabled(PORT, str(taken.getsockname()[1]))
        with pytest.raises(PortTakenError, match=r"the port for the page .* Set .* to a free port"):
            running(sc, tmp_path)
    assert list(tmp_path.glob("epoch-*")) == [] and of_the_page() == []


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("spark.streaming.ui.retainedBatches", "-1", r"retainedBatches is -1"),
        (HOST, "no.such.host.invalid", r"cannot be opened on no\.such\.host"),
    ],
)
def test_a_setting_without_meaning_is_named(sc: SparkContext, enabled: Setting, tmp_path: Path, key: str, value: str, text: str) -> None:
    enabled(key, value)
    with pytest.raises(ConfigurationError, match=text):
        running(sc, tmp_path)
    assert of_the_page() == []


def test_a_start_that_fails_closes_the_port(sc: SparkContext, enabled: Setting, tmp_path: Path) -> None:
    stream = Stream(sc)
    stream.ssc.checkpoint(str(tmp_path))
    refusing_to_start(stream.ssc).foreachRDD(lambda rdd: None)
    with pytest.raises(OSError, match="no source"):
        stream.start()
    assert of_the_page() == [] and stream.ssc.uiUrl is None
