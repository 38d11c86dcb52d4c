"""getOrCreate in a process that has no SparkContext yet: the graph, the settings, the life of Spark (SC1, SC7, SC14, CP4)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext

from kstream import connectors
from kstream.testing import ManualClock
from tests.harness import START
from tests.streams import numbers_connector
from tests.test_recovery import life

JOB = """
import sys
from pyspark import SparkConf, SparkContext
from kstream import StreamingContext
from tests.streams import numbers


def setup():
    print("SETUP", flush=True)
    conf = SparkConf().setMaster("local[1]").setAppName("job").set("spark.ui.enabled", "false")
    ssc = StreamingContext(SparkContext.getOrCreate(conf.set("spark.driver.host", "127.0.0.1")), 1)
    keep = lambda x: "kept" if x in {"a", "b", "c"} else x
    numbers(ssc, 2, keep).foreachRDD(lambda rdd: print("BATCH", rdd.collect(), flush=True))
    return ssc
"""
MAIN = """
import sys
import kstream.context
from kstream import StreamingContext, connectors
from kstream.testing import ManualClock
from pyspark import SparkConf, SparkContext
from job_for_two_processes import setup
from tests.streams import Stream, numbers_connector

connectors.load = numbers_connector
clock = ManualClock(int(sys.argv[2]))
kstream.context.SystemClock = lambda: clock


def recovered():
    ssc = StreamingContext.getOrCreate(sys.argv[1], setup)
    conf = ssc.sparkContext.getConf()
    print("CONF", *(conf.get(f"spark.{key}") for key in ("master", "app.name", "default.parallelism", "locality.wait")))
    return ssc


ssc = recovered()
stream = Stream(ssc.sparkContext, clock, ssc).start()
stream.tick()
stream.stop()
assert ssc.sparkContext._jsc is not None, "stop(stopSparkContext=False) stopped it"
ssc.stop(stopSparkContext=True)
assert ssc.sparkContext._jsc is None, "stop(True) after stop(False) did not stop Spark"

sc = SparkContext(conf=SparkConf().setMaster("local[1]").setAppName("theirs").set("spark.ui.enabled", "false"))
ssc = recovered()
assert ssc.sparkContext is sc
ssc.start()
ssc.stop()
assert sc._jsc is None, "stop() did not stop Spark"
"""


@pytest.mark.timeout(170)
def test_a_new_process_goes_on_with_the_stored_graph_and_settings_unless_it_is_given_others(
    sc: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SC14 and CP4: --master of the new process wins, what it does not say is kept; a SparkContext that is there is taken as it is.
    SC1 and SC7: stop() stops Spark unless told otherwise, also after a stop that did not."""
    clock = ManualClock(START)
    monkeypatch.setattr("kstream.context.SystemClock", lambda: clock)
    monkeypatch.setattr(connectors, "load", numbers_connector)
    job, checkpoint = tmp_path / "job_for_two_processes.py", str(tmp_path / "checkpoint")
    job.write_text(JOB)
    monkeypatch.syspath_prepend(str(tmp_path))
    life(clock, checkpoint, __import__("job_for_two_processes").setup, 2)
    assert capsys.readouterr().out.split("\n") == ["SETUP", "BATCH [0, 1]", "BATCH [2, 3]", ""]
    del sys.modules["job_for_two_processes"]
    root = Path(__file__).parent.parent
    env = {**os.environ, "PYTHONPATH": f"{root}:{root / 'connectors'}:{tmp_path}", "PYTHONHASHSEED": "7"}
    env["PYSPARK_SUBMIT_ARGS"] = "--master local[1] --conf spark.locality.wait=1s --conf spark.ui.enabled=false pyspark-shell"
    done = subprocess.run(
        [sys.executable, "-c", MAIN, checkpoint, str(clock.time_ms())], capture_output=True, text=True, env=env, timeout=160
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line for line in done.stdout.splitlines() if line.startswith(("SETUP", "BATCH", "CONF"))] == [
        f"CONF local[1] {sc.appName} 2 1s",
        "BATCH [4, 5]",
        "CONF local[1] theirs None 1s",
    ]
