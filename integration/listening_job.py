"""A receiver, a page and metrics under spark-submit; once a batch has records, it prints who listens where, as a line of JSON.

spark-submit --master MASTER integration/listening_job.py
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from pyspark import SparkConf

from integration.listening import Listening, listening_of_job
from integration.one_core_job import Steady
from kstream import StreamingContext

PATIENCE_S = 120.0


def main() -> int:
    ssc = StreamingContext(SparkConf(), 1)
    ssc.sparkContext.setLogLevel("OFF")
    found: set[Listening] = set()
    seen = threading.Event()

    def look(rdd: Any) -> None:
        if rdd.count() and not seen.is_set():
            found.update(listening_of_job(rdd.context.applicationId))
            seen.set()

    ssc.receiverStream(Steady(1)).foreachRDD(look)
    ssc.start()
    is_seen = seen.wait(PATIENCE_S)
    print(json.dumps(sorted(found)), flush=True)
    ssc.stop(stopSparkContext=True, stopGraceFully=False)
    return 0 if is_seen else 1


if __name__ == "__main__":
    sys.exit(main())
