"""What a listener hears of three batches with two outputs, of a queue and of files: kinds, order and figures."""

from pathlib import Path

from pyspark.streaming import StreamingContext, StreamingListener

TIMES = ["submissionTime", "processingStartTime", "processingEndTime", "schedulingDelay", "processingDelay", "totalDelay"]


def known(figure):
    """-1, or that there is a number: Spark's times here are those of the machine's clock."""
    return figure if figure == -1 else f"some {type(figure).__name__}"


class Everything(StreamingListener):
    def __init__(self):
        self.heard = []

    def onStreamingStarted(self, streamingStarted):
        self.heard.append(["onStreamingStarted", type(streamingStarted.time()).__mro__[-2].__name__])

    def onBatchSubmitted(self, batchSubmitted):
        self._batch("onBatchSubmitted", batchSubmitted.batchInfo())

    def onBatchStarted(self, batchStarted):
        self._batch("onBatchStarted", batchStarted.batchInfo())

    def onBatchCompleted(self, batchCompleted):
        self._batch("onBatchCompleted", batchCompleted.batchInfo())

    def onOutputOperationStarted(self, outputOperationStarted):
        self._output("onOutputOperationStarted", outputOperationStarted.outputOperationInfo())

    def onOutputOperationCompleted(self, outputOperationCompleted):
        self._output("onOutputOperationCompleted", outputOperationCompleted.outputOperationInfo())

    def onReceiverStarted(self, receiverStarted):
        self.heard.append("onReceiverStarted")

    def _batch(self, kind, info):
        figures = {name: known(getattr(info, name)()) for name in TIMES}
        inputs = info.streamIdToInputInfo()
        self.heard.append([
            kind, info.batchTime().milliseconds(), str(info.batchTime()), info.numRecords(), figures,
            {int(number): self._input(inputs[number]) for number in inputs},
            {int(number): self._of_output(info.outputOperationInfos()[number]) for number in info.outputOperationInfos()},
        ])  # fmt: skip

    def _input(self, info):
        description = info.metadataDescription()
        names = None if description is None else sorted(Path(line).name for line in description.splitlines())
        return [info.inputStreamId(), info.numRecords(), names]

    def _output(self, kind, info):
        self.heard.append([kind, *self._of_output(info)])

    def _of_output(self, info):
        texts = [type(info.name()).__name__, type(info.description()).__name__]
        return [info.batchTime().milliseconds(), info.id(), info.startTime(), info.endTime(), info.failureReason(), texts]


def look_at(rdd):
    rdd.count()


def program(run):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    watched = run.directory / "watched"
    run.arrive(watched / "one", "a\nb\n", 1)
    run.arrive(watched / "two", "c\n", 3)
    run.arrive(watched / "three", "d\n", 3)
    s = ssc.queueStream([[1, 2], [3], []])
    lines = ssc.textFileStream(str(watched))
    s.foreachRDD(look_at)
    lines.foreachRDD(look_at)
    everything = Everything()
    ssc.addStreamingListener(everything)
    run.start(ssc)
    run.tick(ssc, 3)
    ssc.stop(False)
    run.recorder.write("heard", everything.heard)
    run.recorder.write("kinds", [entry[0] for entry in everything.heard])
