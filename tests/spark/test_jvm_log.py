"""What Spark's JVM logs, beside a program of kstream."""

from __future__ import annotations

import subprocess
import sys

from kstream.spark.jvm_log import silence_jvm

PROGRAM = """
from pyspark import SparkConf, SparkContext

from kstream.spark.jvm_log import silence_jvm

sc = SparkContext(conf=SparkConf().setMaster("local[1]").setAppName("quiet").set("spark.ui.enabled", "false"))
root = sc._jvm.org.apache.logging.log4j.LogManager.getContext(False).getConfiguration().getRootLogger()
logging = getattr(getattr(sc._jvm.org.apache.spark.internal, "Logging$"), "MODULE$")


jvm_logger = sc._jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.Some")


def show(when):
    jvm_logger.error(f"a line {when}")
    jvm_logger.info(f"a detail {when}")
    print(root.getLevel(), logging.sparkShellThresholdLevel(), flush=True)


show("before")
silence_jvm(sc)
show("after")
"""


def test_a_silenced_jvm_logs_nothing_more_and_changes_no_level_by_which_spark_keeps_details_out() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == ["INFO WARN", "INFO WARN"]
    assert "a line before" in done.stderr and "a line after" not in done.stderr and "a detail" not in done.stderr


TRACES = """
from pyspark import SparkConf, SparkContext

from kstream.spark.jvm_log import quiet_failed_tasks

sc = SparkContext(conf=SparkConf().setMaster("local[1]").setAppName("quiet").set("spark.ui.enabled", "false"))
quiet_failed_tasks(sc)
logger = sc._jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.Some")
for message in ("Exception in connection from /127.0.0.1:38122", "Failed to update accumulator 0 (org) for task 0", "something else"):
    logger.error(message, sc._jvm.java.io.IOException("reset"))
"""


def test_what_spark_says_of_a_connection_that_has_ended_is_one_line_and_other_errors_keep_their_traces() -> None:
    """A killed executor, or a killed driver, brought dozens of lines of netty."""
    done = subprocess.run([sys.executable, "-c", TRACES], capture_output=True, text=True, timeout=300, check=True)
    lines = [line for line in done.stderr.splitlines() if " ERROR Some: " in line or line.startswith(("java.", "\tat "))]
    assert [line.partition(" Some: ")[2] for line in lines[:3]] == [
        "Exception in connection from /127.0.0.1:38122",
        "Failed to update accumulator 0 (org) for task 0",
        "something else",
    ], done.stderr
    assert lines[3] == "java.io.IOException: reset" and lines[4].startswith("\tat "), done.stderr


def test_nothing_is_silenced_before_there_is_a_context() -> None:
    silence_jvm(None)
