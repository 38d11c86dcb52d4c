"""Every operator on three batches: some records, none, and a queue that has run dry."""

import io
import operator
from contextlib import redirect_stdout

from pyspark import StorageLevel
from pyspark.streaming import StreamingContext

from integration.twins.drawn import batches

TICKS = 3


def add_to_all(rdd):
    return rdd.map(lambda x: x + 100)


def with_time(time, rdd):
    at = time.strftime("%S.%f")
    return rdd.map(lambda x: (at, x))


def record_operators(keep, s):
    keep("map", s.map(lambda x: x + 1), "exact")
    keep("flatMap", s.flatMap(lambda x: [x] * (x % 3)), "exact")
    keep("filter", s.filter(lambda x: x % 2), "exact")
    keep("mapPartitions", s.mapPartitions(lambda part: [sum(part)]), "exact")
    keep("mapPartitionsWithIndex", s.mapPartitionsWithIndex(lambda i, part: [(i, x) for x in part]), "exact")
    keep("glom", s.glom(), "exact")
    keep("repartition", s.repartition(5), "any")
    keep("reduce", s.reduce(max))
    keep("count", s.count())
    keep("countByValue", s.countByValue())
    keep("transform", s.transform(add_to_all), "exact")
    keep("transform with time", s.transform(with_time), "exact")
    keep("cache", s.map(lambda x: -x).cache().filter(lambda x: x < -3), "exact")
    keep("persist", s.map(str).persist(StorageLevel.MEMORY_AND_DISK), "exact")
    keep("union", s.union(s.map(lambda x: x + 4)), "exact")


def pair_operators(keep, p, o):
    keep("mapValues", p.mapValues(lambda v: v * 2), "exact")
    keep("flatMapValues", p.flatMapValues(lambda v: range(v % 3)), "exact")
    keep("reduceByKey", p.reduceByKey(operator.add))
    keep("mapValues keeps partitions", p.reduceByKey(operator.add, 3).mapValues(str).reduceByKey(operator.add, 3))
    keep("groupByKey numPartitions", p.groupByKey(3))
    keep("combineByKey", p.combineByKey(lambda v: {v}, lambda c, v: c | {v}, lambda c, d: c | d, 3).mapValues(sorted))
    keep("partitionBy", p.partitionBy(3))
    keep("partitionBy partitionFunc", p.partitionBy(3, lambda key: len(str(key))))
    keep("cogroup", p.cogroup(o))
    keep("join", p.join(o))
    keep("leftOuterJoin", p.leftOuterJoin(o))
    keep("rightOuterJoin", p.rightOuterJoin(o, 3))
    keep("fullOuterJoin", p.fullOuterJoin(o, numPartitions=3))


def operators_of_several(keep, ssc, s, p, o):
    keep("union of other types", s.union(p), "exact")
    keep("ssc.union", ssc.union(s, s.map(lambda x: -x), s.filter(bool)), "exact")
    keep("union placed alike", p.reduceByKey(operator.add).union(p.reduceByKey(max)))
    keep("ssc.transform", ssc.transform([s, p, o], lambda rdds: rdds[0].ctx.union([rdd.map(str) for rdd in rdds])), "exact")
    keep("transformWith", s.transformWith(lambda a, b: a.cartesian(b.map(lambda pair: pair[1])), o), "any")
    keep("transformWith time", p.transformWith(lambda t, a, b: a.subtractByKey(b).map(lambda kv: (t.second, kv)), o))


def queues(keep, ssc, numbers):
    keep("queue of RDDs", ssc.queueStream(numbers), "exact")
    keep("queue of lists", ssc.queueStream([[1, 2, 3], [4]]), "exact")
    keep("queue all at once", ssc.queueStream(numbers, oneAtATime=False), "exact")
    keep("queue with default", ssc.queueStream(numbers[:1], default=ssc.sparkContext.parallelize([-1, -2], 2)), "exact")
    keep("queue with default list", ssc.queueStream([[1], []], True, [-1]), "exact")


def in_order(run, ssc, s):
    """Who is called when, on the driver: transform's functions as a batch is made, then foreachRDD's."""
    called = []

    def transforming(name):
        def call(time, rdd):
            called.append((name, time.second, rdd.getNumPartitions()))
            return rdd

        return call

    def putting_out(name):
        return lambda time, rdd: called.append((name, time.second, rdd.getNumPartitions()))

    s.transform(transforming("first transform")).foreachRDD(putting_out("first output"))
    s.transform(transforming("second transform")).map(abs).foreachRDD(putting_out("second output"))
    return called


def program(run):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    numbers, pairs, others = batches(run.sc, seed=20261121, count=TICKS - 1, empty=1)
    s, p, o = ssc.queueStream(numbers), ssc.queueStream(pairs), ssc.queueStream(others)
    keep = run.recorder.keep
    record_operators(keep, s)
    pair_operators(keep, p, o)
    operators_of_several(keep, ssc, s, p, o)
    queues(keep, ssc, numbers)
    called = in_order(run, ssc, s)
    s.pprint(5)
    p.filter(lambda pair: pair[0] == "a").pprint()
    p.repartition(1).saveAsTextFiles(str(run.directory / "saved"), "txt")
    s.saveAsTextFiles(str(run.directory / "plain"))
    printed = io.StringIO()
    run.start(ssc)
    with redirect_stdout(printed):
        run.tick(ssc, TICKS)
    ssc.stop(False)
    run.recorder.write("pprint", printed.getvalue())
    run.recorder.write("order of calls", called)
    run.keep_files("saveAsTextFiles", ["saved-*", "plain-*"])
