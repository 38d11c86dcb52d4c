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


def test_nothing_is_silenced_before_there_is_a_context() -> None:
    silence_jvm(None)
