"""LocationStrategies on real executors: two of them, as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from integration.kafka_broker import KafkaBroker

JOB = """
import json, os, sys, time
from kstream.spark.executors import executors
from kstream.spark.spark_context import make_spark_context
from kstream_kafka import KafkaUtils, LocationStrategies, OffsetRange
from pyspark import SparkConf

bootstrap, topic = sys.argv[1:]
conf = SparkConf().setMaster("local-cluster[2,1,1024]").set("spark.ui.enabled", "false").set("spark.executor.memory", "512m")
sc = make_spark_context(conf.set("spark.locality.wait", "30s"))
sc.setLogLevel("ERROR")
end = time.monotonic() + 90
while len(executors(sc)) < 2:
    assert time.monotonic() < end, "two executors did not come"
    time.sleep(0.2)

ranges = [OffsetRange(topic, p, 0, 1) for p in range(4)]
def ran(strategy):
    rdd = KafkaUtils.createRDD(sc, {"bootstrap.servers": bootstrap}, ranges, strategy)
    return [rdd.mapPartitions(lambda it: (list(it), [os.environ["SPARK_EXECUTOR_DIRS"]])[1]).collect() for _ in range(2)]

print(json.dumps({"executors": len(executors(sc)), "consistent": ran(LocationStrategies.PreferConsistent),
    "fixed": ran(LocationStrategies.PreferFixed({r.topicPartition(): "nowhere" for r in ranges}))}))
sc.stop()
"""


@pytest.mark.timeout(240)
def test_KR4_partitions_are_spread_over_the_executors_and_each_stays_on_its_own(kafka: KafkaBroker, topic: Callable[..., str]) -> None:
    name = topic(4)
    kafka.produce(name, [("k", "v", p) for p in range(4)])
    command = [sys.executable, "-c", JOB, kafka.bootstrap, name]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False, env={**os.environ, "PYSPARK_PYTHON": sys.executable}
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    first, second = found["consistent"]
    assert found["executors"] == 2 and first == second
    assert first[0] == first[2] != first[1] == first[3], "neighbouring partitions have neighbouring hashes"
    assert found["fixed"][0] == found["fixed"][1] == first, "a host without executors is as good as no preference"
