"""Windows, states and slices over seven batches: five drawn by a seed, one of them empty, and two when the queue is dry."""

import operator
from datetime import datetime, timedelta

from pyspark import StorageLevel
from pyspark.streaming import StreamingContext

from integration.twins.drawn import batches

TICKS = 7


def total(values, state):
    return sum(values) + (state or 0)


def gone_after_two_idle_batches(values, state):
    count, idle = state or (0, 0)
    if not values and idle == 1:
        return None
    return (count + len(values), 0 if values else idle + 1)


def plain_windows(keep, s, p):
    keep("window", s.window(2), "exact")
    keep("window slides", s.window(3, 2), "exact")
    keep("window of shuffled", p.reduceByKey(operator.add).window(3, 1))
    keep("window of window", s.window(2, 1).window(4, 2), "exact")
    keep("count of window", s.window(4, 2).count())
    keep("reduceByWindow", s.reduceByWindow(operator.add, None, 3, 1))
    keep("reduceByKeyAndWindow", p.reduceByKeyAndWindow(operator.add, None, 3))
    keep("reduceByKeyAndWindow slides", p.reduceByKeyAndWindow(max, None, 4, 2, 3))
    keep("groupByKeyAndWindow", p.groupByKeyAndWindow(4, 2, 3))


def inverse_windows(keep, s, p):
    keep("reduceByWindow inverse", s.reduceByWindow(operator.add, operator.sub, 5, 1))
    keep("countByWindow", s.countByWindow(5, 1))
    keep("countByValueAndWindow", s.countByValueAndWindow(5, 1, 3))
    keep("reduceByKeyAndWindow inverse", p.reduceByKeyAndWindow(operator.add, operator.sub, 5, 1))
    keep("reduceByKeyAndWindow filter", p.reduceByKeyAndWindow(operator.add, operator.sub, 5, 1, 3, lambda kv: kv[1] > 0))


def states(keep, p):
    keep("updateStateByKey", p.updateStateByKey(total))
    keep("updateStateByKey drops", p.updateStateByKey(gone_after_two_idle_batches, 3, [("a", (5, 0)), ("z", (1, 0))]))
    beginning = p.context().sparkContext.parallelize([(None, 1000), ("z", 2000)])
    keep("updateStateByKey initialRDD", p.updateStateByKey(total, initialRDD=beginning))
    keep("state of state", p.updateStateByKey(total).map(lambda kv: (kv[1] % 2, 1)).updateStateByKey(total))


def properties(run, ssc, s):
    p = s.map(lambda x: x)
    run.attempt("is_cached", lambda: p.is_cached)
    run.attempt("is_checkpointed", lambda: p.is_checkpointed)
    run.attempt("persist returns the stream", lambda: p.persist(StorageLevel.MEMORY_ONLY) is p)
    run.attempt("cache returns the stream", lambda: p.cache() is p)
    run.attempt("is_cached after cache", lambda: p.is_cached)
    run.attempt("checkpoint returns the stream", lambda: p.checkpoint(2) is p)
    run.attempt("is_checkpointed after checkpoint", lambda: p.is_checkpointed)
    run.attempt("context", lambda: p.context() is ssc)
    run.attempt("sparkContext", lambda: ssc.sparkContext is run.sc)
    run.attempt("foreachRDD returns", lambda: p.foreachRDD(lambda rdd: None))
    run.attempt("pprint returns", lambda: p.filter(lambda x: False).pprint())
    run.attempt("ssc.union of one returns it", lambda: ssc.union(p) is p)
    run.attempt("remember returns", lambda: ssc.remember(100))
    windowed = s.map(abs)
    windowed.window(2, 1)
    run.attempt("is_cached of what a window is over", lambda: windowed.is_cached)
    run.attempt("is_cached of a window", lambda: windowed.window(2, 1).is_cached)
    run.attempt("is_cached of a persisted window", lambda: windowed.window(2, 1).cache().is_cached)
    run.attempt("is_checkpointed of state", lambda: p.map(lambda x: (x, 1)).updateStateByKey(total).is_checkpointed)


def slices(run, plain, window):
    """From the main thread, when all batches have run."""
    base = datetime.fromtimestamp(1_700_000_000)

    def collected(stream, begin, end):
        return [sorted(rdd.collect()) for rdd in stream.slice(begin, end)]

    def after(seconds):
        return base + timedelta(seconds=seconds)

    run.attempt("slice of datetimes", lambda: collected(plain, after(2), after(5)))
    run.attempt("slice of timestamps", lambda: collected(plain, 1_700_000_001, 1_700_000_003))
    run.attempt("slice of one", lambda: collected(plain, after(4), after(4)))
    run.attempt("slice from the zero time", lambda: collected(plain, after(0), after(2)))
    run.attempt("slice from before the zero time", lambda: collected(plain, after(-3), after(1)))
    run.attempt("slice backwards", lambda: collected(plain, after(5), after(2)))
    run.attempt("slice of a window", lambda: collected(window, after(2), after(6)))
    run.attempt("slice of a window, aside of its slide", lambda: collected(window, after(3), after(5)))


def program(run):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    ssc.checkpoint(str(run.directory / "checkpoint"))
    numbers, pairs, _ = batches(run.sc, seed=4, count=TICKS - 2, empty=2)
    s, p = ssc.queueStream(numbers), ssc.queueStream(pairs)
    keep = run.recorder.keep
    plain_windows(keep, s, p)
    inverse_windows(keep, s, p)
    states(keep, p)
    keep("checkpoint", s.map(float).checkpoint(2), "exact")
    properties(run, ssc, s)
    window = s.window(2, 2)
    keep("window to slice", window)
    run.start(ssc)
    run.tick(ssc, TICKS)
    slices(run, s, window)
    ssc.stop(False)
