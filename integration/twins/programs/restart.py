"""A job with states and windows over files, by getOrCreate; which ends after five batches; two are missed, and another process goes on."""

import operator

from pyspark.streaming import StreamingContext

BEFORE, MISSED, AFTER = 5, 2, 4


def total(values, state):
    return sum(values) + (state or 0)


def pair(line):
    word, number = line.split()
    return word, int(number)


def text_of(batch):
    """Some lines for each batch, none for every fourth."""
    lines = [f"{'abcd'[(batch * i) % 4]} {batch + i}" for i in range(batch % 4 * 3)]
    return "".join(f"{line}\n" for line in lines)


def setup(run):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    run.recorder.write(f"setup in life {run.life}", True)
    lines = ssc.textFileStream(str(run.directory / "watched"))
    pairs = lines.map(pair)
    keep = run.recorder.keep
    keep("pairs", pairs, "any")
    keep("state", pairs.updateStateByKey(total))
    # Written in time: pyspark cannot go back to the initialRDD, which died with the first process.
    keep("state with a beginning", pairs.updateStateByKey(total, 3, [("a", 100), ("z", 200)]).checkpoint(2))
    keep("window", pairs.window(3, 1), "any")
    keep("sums", pairs.reduceByKeyAndWindow(operator.add, None, 4, 2))
    keep("sums by inverse", pairs.reduceByKeyAndWindow(operator.add, operator.sub, 5, 1))
    keep("count over a window", pairs.countByWindow(6, 1))
    return ssc


def program(run):
    checkpoint = str(run.directory / "checkpoint")
    if run.life == 1:
        first, ticks = 1, BEFORE
    else:
        for batch in range(BEFORE + 1, BEFORE + 1 + MISSED):
            run.arrive(run.directory / "watched" / f"{batch}", text_of(batch), batch - 0.5)
        first, ticks = BEFORE + MISSED + 1, AFTER
    ssc = StreamingContext.getOrCreate(checkpoint, lambda: setup(run))
    run.start(ssc)
    run.recorder.write(f"goes on in life {run.life}", ssc is StreamingContext.getActive())
    for batch in range(first, first + ticks):
        run.arrive(run.directory / "watched" / f"{batch}", text_of(batch), batch - 0.5)
        run.tick(ssc)
    ssc.stop()
