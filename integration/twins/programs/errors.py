"""What is refused, and in which words; and the life of a context, call by call."""

from pyspark.streaming import StreamingContext, StreamingListener


def total(values, state):
    return sum(values) + (state or 0)


def while_building(run, refused):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    s = ssc.queueStream([[1, 2, 3]])
    slow = s.window(4, 2)
    refused("window of half a batch", lambda: s.window(0.5), "multiple of")
    refused("window of one and a half batches", lambda: s.window(1.5, 1), "multiple of")
    refused("window that slides by half a batch", lambda: s.window(2, 0.5), "multiple of")
    refused("window of a window that slides more slowly", lambda: slow.window(3), "multiple of")
    refused("slide below that of the parent", lambda: slow.window(4, 1), "multiple of")
    refused("reduceByWindow", lambda: s.reduceByWindow(max, None, 1.5, 1), "multiple of")
    refused("countByWindow", lambda: s.countByWindow(3, 1.5), "multiple of")
    refused("countByValueAndWindow", lambda: s.countByValueAndWindow(1.5, 1), "multiple of")
    refused("reduceByKeyAndWindow", lambda: s.reduceByKeyAndWindow(max, None, 1.5), "multiple of")
    refused("reduceByKeyAndWindow inverse", lambda: s.reduceByKeyAndWindow(max, min, 2, 0.3), "multiple of")
    refused("groupByKeyAndWindow", lambda: s.groupByKeyAndWindow(1.5, 1), "multiple of")
    refused("union of other slides", lambda: s.union(slow), "slide duration")
    refused("ssc.union of other slides", lambda: ssc.union(s, slow), "slide duration")
    refused("ssc.union of nothing", ssc.union, "at least one")
    refused("setup that is no function", lambda: StreamingContext.getActiveOrCreate(None, "setup"), "callable")
    refused("slice before the start", lambda: s.slice(0, 1), "has not been initialized")
    refused("wait before the start", lambda: ssc.awaitTerminationOrTimeout(0.1), "")
    ssc.remember(5)
    refused("remember twice", lambda: ssc.remember(10), "already set")
    refused("start without outputs", ssc.start, "No output operations registered, so nothing to execute")
    ssc.stop(False)


def state_without_checkpoint(run, refused):
    for name, build in {
        "updateStateByKey": lambda s: s.updateStateByKey(total),
        "reduceByKeyAndWindow": lambda s: s.reduceByKeyAndWindow(max, min, 10, 1),
        "reduceByWindow": lambda s: s.reduceByWindow(max, min, 10, 1),
        "countByWindow": lambda s: s.countByWindow(10, 1),
    }.items():
        ssc = run.at_start(StreamingContext(run.sc, 1))
        build(ssc.queueStream([[(1, 1)]])).pprint()
        refused(f"{name} without a checkpoint directory", ssc.start, "checkpoint directory has not been set")
        run.attempt(f"active after {name} was refused", StreamingContext.getActive)
        refused(f"start again after {name} was refused", ssc.start, "")
        ssc.stop(False)


def life(run, refused):
    attempt = run.attempt
    attempt("active before the start", StreamingContext.getActive)
    ssc, other = (run.at_start(StreamingContext(run.sc, 1)) for _ in range(2))
    s, there = ssc.queueStream([[1], [2], [3]]), other.queueStream([[1]])
    s.foreachRDD(lambda rdd: None)
    there.foreachRDD(lambda rdd: None)
    run.start(ssc)
    run.tick(ssc)
    attempt("active after the start", lambda: StreamingContext.getActive() is ssc)
    attempt("getActiveOrCreate while active", lambda: StreamingContext.getActiveOrCreate(None, lambda: 1 / 0) is ssc)
    attempt("getActiveOrCreate with a path while active", lambda: StreamingContext.getActiveOrCreate("/none", lambda: 1 / 0) is ssc)
    attempt("start twice", ssc.start)
    refused("start of another", other.start, "Only one StreamingContext may be started in this")
    attempt("await that times out", lambda: ssc.awaitTerminationOrTimeout(0.05))
    attempt("awaitTermination that times out", lambda: ssc.awaitTermination(0.05))
    refused("input after the start", lambda: ssc.queueStream([[1]]), "after starting a context is not supported")
    refused("output after the start", lambda: s.foreachRDD(lambda rdd: None), "after starting a context is not supported")
    refused("operator after the start", lambda: s.map(abs).pprint(), "after starting a context is not supported")
    refused("window after the start", lambda: s.window(2), "after starting a context is not supported")
    refused("text files after the start", lambda: ssc.textFileStream(str(run.directory)), "after starting a context is not supported")
    refused("persist after the start", s.cache, "")
    attempt("listener after the start", lambda: ssc.addStreamingListener(StreamingListener()))
    run.tick(ssc)
    attempt("stop", lambda: ssc.stop(False))
    attempt("stop twice", lambda: ssc.stop(False))
    attempt("active after the stop", StreamingContext.getActive)
    attempt("await after the stop", lambda: ssc.awaitTerminationOrTimeout(60))
    attempt("awaitTermination after the stop", ssc.awaitTermination)
    refused("start after the stop", ssc.start, "StreamingContext has already been stopped")
    refused("input after the stop", lambda: ssc.queueStream([[1]]), "after stopping a context is not supported")
    refused("output after the stop", lambda: s.foreachRDD(lambda rdd: None), "after stopping a context is not supported")
    attempt("the other starts now", other.start)
    attempt("stop of the other", lambda: other.stop(False))


def made_by_setup(run, refused):
    made = []

    def setup():
        made.append(run.at_start(StreamingContext(run.sc, 1)))
        return made[-1]

    path = str(run.directory / "made")
    run.attempt("getOrCreate of nothing", lambda: StreamingContext.getOrCreate(path, setup) is made[0])
    run.attempt("getActiveOrCreate of nothing", lambda: StreamingContext.getActiveOrCreate(path, setup) is made[1])
    run.attempt("getActiveOrCreate without a path", lambda: StreamingContext.getActiveOrCreate(None, setup) is made[2])
    run.attempt("setups", lambda: len(made))
    made[0].queueStream([[(1, 1)]]).updateStateByKey(total).foreachRDD(lambda rdd: None)
    run.attempt("getOrCreate has set the checkpoint directory", made[0].start)
    for ssc in made:
        ssc.stop(False)


def queue_with_a_checkpoint(run, refused):
    path = str(run.directory / "of-a-queue")

    def setup():
        ssc = run.at_start(StreamingContext(run.sc, 1))
        ssc.queueStream([[1], [2]]).foreachRDD(lambda rdd: None)
        return ssc

    ssc = StreamingContext.getOrCreate(path, setup)
    run.start(ssc)
    run.tick(ssc, 2)
    ssc.stop(False)
    refused("recovery of a queue", lambda: StreamingContext.getOrCreate(path, setup).start(), "queueStream doesn't support checkpointing")


def stopped_before_the_start(run, refused):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    ssc.queueStream([[1]]).pprint()
    run.attempt("stop before the start", lambda: ssc.stop(False))
    refused("start after a stop before it", ssc.start, "StreamingContext has already been stopped")


def program(run):
    def refused(name, call, says):
        run.attempt(name, call, says)

    while_building(run, refused)
    state_without_checkpoint(run, refused)
    queue_with_a_checkpoint(run, refused)
    life(run, refused)
    made_by_setup(run, refused)
    stopped_before_the_start(run, refused)
    ssc = StreamingContext(run.sc, 1)
    run.attempt("stop of Spark, too", ssc.stop)
    run.attempt("Spark has stopped", lambda: ssc.sparkContext._jsc is None)
