"""pyarrow is optional: only DataFrames need it. Jobs with and without receivers run where it is not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

JOB = """
import json, threading
from kstream import Receiver, StreamingContext
from pyspark import SparkConf, StorageLevel


class Three(Receiver):
    def __init__(self):
        super().__init__(StorageLevel.MEMORY_ONLY)

    def onStart(self):
        self.storeAll([1, 2, 3])

    def onStop(self): ...


def can_import(package):
    try:
        __import__(package)
    except ImportError:
        return False
    return True


def results(ssc, stream):
    seen, all_seen = [], threading.Event()

    def see(rdd):
        seen.extend(rdd.collect())
        if len(seen) >= 3:
            all_seen.set()

    stream.map(lambda n: [n, can_import("pyarrow")]).foreachRDD(see)
    ssc.start()
    assert all_seen.wait(60), seen
    ssc.stop(stopSparkContext=False)
    return sorted(seen)


conf = SparkConf().setMaster("local[2]").setAppName("job").set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
ssc = StreamingContext(conf, 0.2)
sc = ssc.sparkContext
sc.setLogLevel("OFF")
queued = results(ssc, ssc.queueStream([[1, 2], [3]]))
ssc = StreamingContext(sc, 0.2)
received = results(ssc, ssc.receiverStream(Three()))
sc.stop()
print(json.dumps({"queued": queued, "received": received, "pyarrow": can_import("pyarrow")}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the job prints where no process, neither the driver nor a worker, can import pyarrow."""
    folder = tmp_path_factory.mktemp("without_pyarrow")
    (folder / "sitecustomize.py").write_text("import sys; sys.modules['pyarrow'] = None")
    (folder / "job.py").write_text(JOB)
    root = Path(__file__).resolve().parent.parent
    path = os.pathsep.join(map(str, (folder, root, root / "connectors")))
    environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([sys.executable, folder / "job.py"], capture_output=True, text=True, env=environment, timeout=150, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("job", ["queued", "received"])
def test_a_job_without_data_frames_runs_without_pyarrow(found: dict[str, Any], job: str) -> None:
    assert found["pyarrow"] is False
    assert found[job] == [[1, False], [2, False], [3, False]]
