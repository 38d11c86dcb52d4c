"""Batches that fail, in a task, in an output function and in a transform; what follows goes on."""

from pyspark.streaming import StreamingContext, StreamingListener


def look_at(rdd):
    rdd.count()


class Endings(StreamingListener):
    """How the output operations of each batch ended: batch time → output number → whether a reason was told, and named the error."""

    def __init__(self):
        self.seen = []

    def onBatchCompleted(self, batchCompleted):
        info = batchCompleted.batchInfo()
        infos = info.outputOperationInfos()
        ended = {}
        for number in range(3):
            reason = infos[number].failureReason()
            ended[number] = reason is None or ("made to fail" in reason and "Traceback" in reason)
            ended[f"{number} is fine"] = reason is None
        self.seen.append([info.batchTime().milliseconds(), ended])


def fail_on(bad, text):
    def check(x):
        if x == bad:
            raise ValueError(text)
        return x

    return check


def in_a_task(run):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    s = ssc.queueStream([[1], [2], [3], [4]])
    keep = run.recorder.keep
    keep("before the failing output", s)
    keep("the failing output", s.map(fail_on(2, "made to fail in a task")))
    keep("after the failing output", s.map(lambda x: x * 10))
    endings = Endings()
    ssc.addStreamingListener(endings)
    run.start(ssc)
    run.tick(ssc, 2)
    run.attempt("await after a failed task", lambda: ssc.awaitTerminationOrTimeout(60), "made to fail in a task")
    run.attempt("await again", lambda: ssc.awaitTermination(60), "made to fail in a task")
    run.attempt("still active", lambda: StreamingContext.getActive() is ssc)
    run.tick(ssc, 2)
    ssc.stop(False)
    run.attempt("await after the stop", ssc.awaitTermination, "made to fail in a task")
    run.recorder.write("endings", endings.seen)


def in_an_output(run):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    s = ssc.queueStream([[1], [2], [3]])

    def output(time, rdd):
        fail_on(2, "made to fail in an output")(rdd.first())

    s.foreachRDD(output)
    run.recorder.keep("beside an output function that fails", s)
    run.start(ssc)
    run.tick(ssc, 3)
    run.attempt("await after a failed output function", lambda: ssc.awaitTermination(60), "made to fail in an output")
    ssc.stop(False)


def in_a_transform(run):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    s = ssc.queueStream([[1], [2], [3]])

    def transform(time, rdd):
        if time.second % 10 == (1_700_000_000 + 2) % 10:
            raise KeyError("made to fail in a transform")
        return rdd.map(lambda x: x + 1)

    run.recorder.keep("beside a transform that fails", s)
    run.recorder.keep("a transform that fails", s.transform(transform))
    run.start(ssc)
    run.tick(ssc)
    run.tick(ssc, wait=False)
    run.attempt("await after a failed transform", lambda: ssc.awaitTerminationOrTimeout(60), "made to fail in a transform")
    run.tick(ssc)
    ssc.stop(False)


def with_a_context_in_the_closure(run):
    sc = run.sc
    ssc = run.at_start(StreamingContext(sc, 1))
    ssc.queueStream([[1]]).map(lambda x: sc.parallelize([x]).count()).foreachRDD(look_at)

    def life():  # pyspark fails its first batch, kstream the start
        run.start(ssc)
        run.tick(ssc, wait=False)
        ssc.awaitTermination(60)

    run.attempt("a function that holds the SparkContext", life, "SparkContext can only be used on the driver")
    ssc.stop(False)


def a_listener_that_raises(run):
    class Raises(StreamingListener):
        def onBatchCompleted(self, batchCompleted):
            raise RuntimeError("made to fail in a listener")

    ssc = run.at_start(StreamingContext(run.sc, 1))
    run.recorder.keep("beside a listener that raises", ssc.queueStream([[1], [2]]))
    ssc.addStreamingListener(Raises())
    run.start(ssc)
    run.tick(ssc, 2)
    run.attempt("await after a listener raised", lambda: ssc.awaitTerminationOrTimeout(0.05))
    ssc.stop(False)


def no_function(run):
    """What is handed back instead of an RDD."""
    ssc = run.at_start(StreamingContext(run.sc, 1))
    ssc.queueStream([[1]]).transform(lambda rdd: [1, 2]).foreachRDD(look_at)
    run.start(ssc)
    run.tick(ssc, wait=False)
    run.attempt("a transform that returns a list", lambda: ssc.awaitTermination(60), "list")
    ssc.stop(False)


def program(run):
    in_a_task(run)
    in_an_output(run)
    in_a_transform(run)
    with_a_context_in_the_closure(run)
    a_listener_that_raises(run)
    no_function(run)
