"""SIGTERM under spark-submit, which reaches the JVM alone, in the middle of a batch."""

from __future__ import annotations

from pathlib import Path

from integration.submitted import Submitted
from kstream.checkpoint import read_log
from kstream.storage import open_store

JOB = '''
"""Each batch notes that it has begun, and lasts until there is a file `go`."""
import os, sys, time

from pyspark import SparkConf

from kstream import StreamingContext

directory = sys.argv[1]


def wait_for_go(_):
    while not os.path.exists(os.path.join(directory, "go")):
        time.sleep(0.05)


def batch(at, rdd):
    print("begun", at.milliseconds)
    rdd.context.parallelize([0], 1).foreach(wait_for_go)
    print("ended", at.milliseconds)


def setup():
    ssc = StreamingContext(SparkConf().setAppName("slow"), 1)
    ssc.textFileStream(os.path.join(directory, "incoming")).foreachRDD(batch)
    return ssc


ssc = StreamingContext.getOrCreate(os.path.join(directory, "checkpoint"), setup)
ssc.start()
ssc.awaitTermination()
'''


def test_a_batch_that_a_sigterm_cut_short_has_not_failed_and_runs_again(tmp_path: Path) -> None:
    """Of those that fail there are only so many re-runs: a platform that moves its drivers often must not use them up."""
    script = tmp_path / "job.py"
    script.write_text(JOB)
    (tmp_path / "incoming").mkdir()
    with Submitted(tmp_path, script, tmp_path) as first:
        first.wait_for("the first batch", lambda: "begun" in first.said())
        first.terminate()
    cut = int(first.said().partition("begun ")[2].split()[0])
    log = read_log(open_store(str(tmp_path / "checkpoint")))
    assert not log.failures and cut in [time.milliseconds for time in log.pending]
    (tmp_path / "go").touch()
    with Submitted(tmp_path, script, tmp_path) as second:
        second.wait_for("the batch again", lambda: f"ended {cut}" in second.said())
        assert "Traceback" not in second.terminate()


def test_a_driver_whose_jvm_is_killed_under_spark_submit_ends_with_that_reason(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        JOB.replace(
            "ssc.awaitTermination()", "try:\n    ssc.awaitTermination()\nexcept Exception as e:\n    open('said', 'w').write(repr(e))"
        )
    )
    (tmp_path / "go").touch()
    with Submitted(tmp_path, script, tmp_path) as submitted:
        submitted.wait_for("a batch", lambda: "ended" in submitted.said())
        driver = submitted.driver()
        submitted.kill()
        submitted.wait_for_the_driver(driver)
    assert (tmp_path / "said").read_text().startswith("JvmLostError(\"Spark's JVM has ended: this driver can run nothing more.")
