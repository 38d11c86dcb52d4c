"""getOrCreate in a process without a SparkContext: the graph, the settings, the life of Spark (Spark behaviours SC1, SC7, SC14, CP4)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext

from kstream import connectors
from kstream.testing import ManualClock
from tests.harness import START
from tests.streams import life, numbers_connector

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
import kstream.context.streaming_context
from kstream import StreamingContext, connectors
from kstream.testing import ManualClock
from pyspark import SparkConf, SparkContext
from job_for_two_processes import setup
from tests.streams import Stream, numbers_connector

connectors.load = numbers_connector
clock = ManualClock(int(sys.argv[2]))
kstream.context.streaming_context.SystemClock = lambda: clock


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
    sc: SparkContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    setting: Callable[[str, str], None],
) -> None:
    """SC14 and CP4: --master of the new process wins, what it does not say is kept; a SparkContext that is there is taken as it is.
    SC1 and SC7: stop() stops Spark unless told otherwise, also after a stop that did not."""
    setting("spark.streaming.kstream.recovery", "graph")
    clock = ManualClock(START)
    monkeypatch.setattr("kstream.context.streaming_context.SystemClock", lambda: clock)
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


SCRIPT = """
import sys
from kstream import StreamingContext
from kstream.testing import TestInputStream
from pyspark import SparkConf


def setup():
    print("SETUP", flush=True)
    settings = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.host": "127.0.0.1",
        "spark.my.setting": "1", "spark.my.other": "2", "spark.driver.extraJavaOptions": "-Dmine=3", "spark.my.password": "x",
        "spark.streaming.kstream.recovery": sys.argv[2],
    }
    ssc = StreamingContext(SparkConf().setMaster("local[3]").setAppName("job").setAll(list(settings.items())), 1)
    TestInputStream(ssc, [[1]]).foreachRDD(lambda rdd: None)
    return ssc


def life():
    ssc = StreamingContext.getOrCreate(sys.argv[1], setup)
    conf, system = ssc.sparkContext.getConf(), ssc.sparkContext._jvm.java.lang.System
    told = [conf.get(f"spark.{key}") for key in ("master", "app.name", "ui.showConsoleProgress", "my.setting", "my.other", "my.password")]
    print("CONF", *told, system.getProperty("mine"), conf.get("spark.driver.extraJavaOptions").count("add-opens"), flush=True)
    ssc.start()
    ssc.stop()


life()
life()
"""


@pytest.fixture
def started(tmp_path: Path) -> Callable[..., list[str]]:
    """Runs SCRIPT in a process of its own, by Python or by spark-submit; what it printed."""
    script, root, home = tmp_path / "script.py", Path(__file__).parent.parent, Path(pyspark.__file__).parent
    script.write_text(SCRIPT)

    def start(mode: str, *submit: str, **environment: str) -> list[str]:
        env = {**os.environ, "PYTHONPATH": f"{root}:{root / 'connectors'}", "SPARK_HOME": str(home), **environment}
        command = [str(home / "bin" / "spark-submit"), *submit] if submit else [sys.executable]
        done = subprocess.run([*command, str(script), str(tmp_path / mode), mode], capture_output=True, text=True, env=env, timeout=160)
        assert done.returncode == 0, done.stderr[-3000:]
        return [line for line in done.stdout.splitlines() if line.startswith(("SETUP", "CONF"))]

    return start


@pytest.mark.timeout(600)
def test_a_restart_with_the_stored_graph_keeps_the_master_and_every_setting_but_what_the_new_process_is_given(
    started: Callable[..., list[str]], tmp_path: Path
) -> None:
    """What Spark's launcher makes up for a JVM that it was told nothing of – the master local[*] among it – is given by nobody."""
    (kept, opens) = started("graph")[1].rsplit(" ", 1)
    assert kept == "CONF local[3] job false 1 2 x 3" and int(opens) > 0
    restored = f"CONF local[3] job false 1 2 None 3 {opens}"
    assert started("graph") == [restored, restored]
    assert (
        started("graph", "--conf", "spark.my.setting=given", "--driver-java-options", "-Dmine=3")
        == [
            f"CONF local[3] job false given 2 None 3 {opens}",
        ]
        * 2
    )
    (tmp_path / "spark-defaults.conf").write_text("# ours\nspark.my.other = 5\nspark.ui.showConsoleProgress true\n")
    given = {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": "--master local[*] pyspark-shell"}
    assert started("graph", **given) == [f"CONF local[*] job true given 5 None 3 {opens}"] * 2, "what one life was given, the next has"


@pytest.mark.timeout(200)
def test_without_a_stored_graph_the_settings_of_setup_hold_at_each_start(started: Callable[..., list[str]]) -> None:
    one, other = started("setup")[1::2]
    assert one == other and one.startswith("CONF local[3] job false 1 2 x 3 ")
