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


def show():
    print(root.getLevel(), logging.sparkShellThresholdLevel(), flush=True)


show()
silence_jvm(sc)
show()
"""


def test_a_silenced_jvm_keeps_the_threshold_that_keeps_a_line_out_that_is_just_being_written() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == ["INFO WARN", "OFF WARN"]


def test_nothing_is_silenced_before_there_is_a_context() -> None:
    silence_jvm(None)
