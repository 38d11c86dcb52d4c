"""Sensors: means and extremes over windows, readings by sensor, those that fell silent, and everything saved as text."""

import random

from pyspark.streaming import StreamingContext

SECONDS = 10
SENSORS = [f"s{n:02}" for n in range(24)]


def draw_batches():
    """(sensor, tenths of a degree) a batch. Each sensor is silent for a while; one batch has nothing."""
    draw = random.Random(99)
    silent = {sensor: range(start := draw.randint(0, 9), start + draw.randint(1, 5)) for sensor in SENSORS}
    return [
        [
            (sensor, 200 + 10 * index + draw.randint(-50, 50))
            for index, sensor in enumerate(SENSORS)
            for _ in range(draw.randint(5, 12))
            if second not in silent[sensor] and second != 7
        ]
        for second in range(SECONDS - 1)
    ]


def merge(one, other):
    """Of (count, sum, least, most)."""
    return one[0] + other[0], one[1] + other[1], min(one[2], other[2]), max(one[3], other[3])


def described(entry):
    count, total, least, most = entry
    return f"n={count} mean={total / count / 10:.2f} least={least / 10} most={most / 10}"


def silence(values, batches):
    """For how many batches a sensor has been silent; forgotten after three."""
    if values:
        return 0
    return None if batches == 3 else batches + 1


def build(ssc, readings, directory, keep):
    source = ssc.queueStream(readings)
    figures = source.mapValues(lambda tenths: (1, tenths, tenths, tenths))
    everywhere = figures.map(lambda reading: reading[1]).reduceByWindow(merge, None, 4, 2)
    by_sensor = source.groupByKeyAndWindow(3, 3).mapValues(lambda tenths: (len(tenths), sum(tenths)))
    late = source.updateStateByKey(silence).filter(lambda entry: entry[1] >= 1)
    keep("everywhere", everywhere.map(described))
    keep("by sensor", figures.reduceByKeyAndWindow(merge, None, 5, 1).mapValues(described))
    keep("grouped", by_sensor)
    keep("whole degrees", source.map(lambda reading: reading[1] // 100).countByValueAndWindow(6, 2))
    keep("late", late)
    keep("readings", source.map(lambda reading: reading[1]).reduceByWindow(lambda a, b: a + b, lambda a, b: a - b, 5, 1))
    means = by_sensor.map(lambda entry: f"{entry[0]} {entry[1][1] / entry[1][0]:.1f}")
    means.transform(lambda rdd: rdd.sortBy(str, numPartitions=2)).saveAsTextFiles(f"{directory}/means", "txt")
    silent = late.map(lambda entry: f"{entry[0]} has been silent for {entry[1]}")
    silent.transform(lambda rdd: rdd.sortBy(str, numPartitions=1)).saveAsTextFiles(f"{directory}/late")


def program(run):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    ssc.checkpoint(str(run.directory / "checkpoint"))
    build(ssc, draw_batches(), str(run.directory / "saved"), run.recorder.keep)
    run.start(ssc)
    run.tick(ssc, SECONDS)
    ssc.stop(False)
    run.keep_files("saved", ["saved/*"])
