"""A context checks the settings of streaming before it starts Spark, and warns once about those without effect."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable

import pytest
from pyspark import SparkContext

from kstream import StreamingContext
from kstream.errors import ConfigurationError
from tests.streams import Stream

Setting = Callable[[str, str], None]
BEFORE_SPARK = """
from pyspark import SparkConf, SparkContext
from kstream import StreamingContext
from kstream.errors import ConfigurationError
for key, value, interval in [("dynamicAllocation.enabled", "true", 1), ("blockInterval", "soon", 1), ("unpersist", "true", 0)]:
    try:
        StreamingContext(SparkConf().setMaster("local[2]").set(f"spark.streaming.{key}", value), interval)
    except ConfigurationError as e:
        print(e.facts["key"])
assert SparkContext._gateway is None
"""


def test_a_setting_or_an_interval_that_cannot_work_is_refused_before_spark_starts() -> None:
    done = subprocess.run([sys.executable, "-c", BEFORE_SPARK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["spark.streaming.dynamicAllocation.enabled", "spark.streaming.blockInterval", "batchDuration"]


def test_a_setting_of_the_given_spark_context_is_checked_too(sc: SparkContext, setting: Setting) -> None:
    setting("spark.streaming.dynamicAllocation.enabled", "true")
    with pytest.raises(ConfigurationError, match=r"Allocation\.enabled is true"):
        StreamingContext(sc, 1)


def test_a_misspelt_setting_is_one_warning_when_the_context_is_made(
    sc: SparkContext, setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    setting("spark.streaming.kafka.maxRatePerPartiton", "10")
    setting("spark.streaming.sessionByKey.deltaChainThreshold", "10")
    with caplog.at_level(logging.WARNING, "kstream"):
        Stream(sc)
    dead, unknown = (record.message for record in caplog.records)
    assert dead.startswith("settings of Spark that have no effect") and dead.endswith("spark.streaming.sessionByKey.deltaChainThreshold")
    assert "spark.streaming.kafka.maxRatePerPartiton is unknown" in unknown


def test_settings_that_are_known_give_no_warning(sc: SparkContext, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kstream"):
        Stream(sc)
    assert caplog.records == []
