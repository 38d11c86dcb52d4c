"""What kstream does otherwise than pyspark, on purpose; the table in test_same_as_pyspark.py says why."""

import functools
import operator
from datetime import datetime, timedelta

from pyspark.streaming import StreamingContext


def windows(run):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    ssc.checkpoint(str(run.directory / "checkpoint"))
    p = ssc.queueStream([[("a", 1), ("a", 2)], [("b", 5)]])
    keep = run.recorder.keep
    keep("inverse over a short window", p.reduceByKeyAndWindow(operator.add, operator.sub, 2, 1, 1), "any")
    keep("countByWindow over a short window", p.countByWindow(2, 1), "any")
    keep("groupByKeyAndWindow over a long window", p.groupByKeyAndWindow(5, 1, 1), "any")
    keep("filter without inverse", p.reduceByKeyAndWindow(operator.add, None, 1, 1, 1, lambda kv: kv[0] == "a"), "any")
    run.attempt("a join of other slides", lambda: keep("joined slides", p.join(p.window(2, 2), 1), "any"))
    run.start(ssc)
    run.tick(ssc, 7)
    ssc.stop(False)


def streams(run):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    keep = run.recorder.keep
    s = ssc.queueStream([[1], [2], [3]])
    keep("count of an RDD without partitions", s.transform(lambda rdd: rdd.ctx.emptyRDD()).count(), "any")
    keep("slides over a queue", ssc.queueStream([[1], [2], [3], [4]]).window(1, 2), "any")
    growing = [[1]]
    keep("a queue that grows", ssc.queueStream(growing), "any")
    run.attempt("queue of nothing", lambda: keep("an empty queue", ssc.queueStream([]), "any"))
    keep("an empty queue with a default", ssc.queueStream([], default=run.sc.parallelize([9], 1)), "any")
    calls = []

    def counted(rdd):
        calls.append(rdd)
        return rdd

    shared = s.transform(counted)
    shared.map(abs).foreachRDD(lambda rdd: None)
    shared.map(str).foreachRDD(lambda rdd: None)
    given = []
    s.foreachRDD(lambda rdd, name="mine": given.append(name))
    run.attempt("a partial as output", lambda: s.foreachRDD(functools.partial(operator.call, lambda rdd: None)))
    run.start(ssc)
    growing.append([2])
    run.tick(ssc, 4)
    run.recorder.write("calls of a shared transform", len(calls))
    run.recorder.write("an output function with a default argument", [name == "mine" for name in given])
    ssc.stop(False)


def half_seconds(run):
    """Batches below a second, and what a slice makes of a datetime between two seconds."""
    ssc = run.at_start(StreamingContext(run.sc, 0.5))
    s = ssc.queueStream([[1], [2], [3], [4]])
    s.foreachRDD(lambda rdd: None)
    ssc.remember(100)
    run.start(ssc)
    run.tick(ssc, 2)
    at = datetime.fromtimestamp(1_700_000_000) + timedelta(seconds=1.5)
    run.attempt("slice of half a second", lambda: [rdd.collect() for rdd in s.slice(at, at)])
    ssc.stop(False)


def an_output_that_returns(run):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: rdd.collect())
    run.start(ssc)
    run.tick(ssc)
    run.attempt("await after an output function returned a list", lambda: ssc.awaitTerminationOrTimeout(0.5))
    ssc.stop(False)


def no_rdd(run):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    s = ssc.queueStream([[1], [2], [3]])
    s.foreachRDD(lambda rdd: None)
    run.recorder.keep("a transform that returns None", s.transform(lambda time, rdd: None if time.second % 2 else rdd))
    run.start(ssc)
    run.tick(ssc, 3)
    run.attempt("await after a transform returned None", lambda: ssc.awaitTerminationOrTimeout(0.05))
    ssc.stop(False)


def words(run):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    s = ssc.queueStream([[1]])
    run.attempt("a context without a duration", lambda: StreamingContext(run.sc))
    run.attempt("a transform of three", lambda: s.transform(lambda a, b, c: a))
    run.attempt("a transformWith of one", lambda: s.transformWith(lambda a: a, s))
    run.attempt("a window of nothing", lambda: s.window(0) is not None)
    run.attempt("a checkpoint interval of half a slide", lambda: s.checkpoint(0.5) is not None)
    run.attempt("a checkpoint interval of one and a half slides", lambda: s.checkpoint(1.5) is not None)
    s.foreachRDD(lambda rdd: None)
    ssc.stop(False)


def program(run):
    windows(run)
    streams(run)
    half_seconds(run)
    an_output_that_returns(run)
    no_rdd(run)
    words(run)
