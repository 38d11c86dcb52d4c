"""Web access log analytics: files in a directory; requests by status, bytes by path, the busiest paths of a sliding window, bad lines."""

import operator
import random
import re

from pyspark.streaming import StreamingContext

SECONDS = 10
LINE = re.compile(r'^(\S+) \S+ \S+ \[([^\]]+)\] "(\w+) (\S+) [^"]*" (\d{3}) (\d+|-)$')
PATHS = ["/", "/index.html", "/login", "/cart", "/checkout", *(f"/item/{n}" for n in range(30))]


def parse(line):
    """(path, status, bytes), or None for a line that is none of an access log."""
    found = LINE.match(line)
    if found is None:
        return None
    size = found.group(6)
    return found.group(4), int(found.group(5)), 0 if size == "-" else int(size)


def log_file(draw, second):
    """Some hundreds of lines, a few of them cut off; the busiest path changes over time."""
    lines = []
    for _ in range(draw.randint(200, 500)):
        path = PATHS[second % 5] if draw.random() < 0.3 else draw.choice(PATHS)
        status, size = draw.choices([200, 304, 404, 500], [80, 10, 8, 2])[0], draw.choice(["-", str(draw.randint(100, 90_000))])
        client, at = f"10.0.{draw.randint(0, 3)}.{draw.randint(1, 250)}", f"14/Nov/2023:22:13:{20 + second:02}"
        line = f'{client} - - [{at}] "GET {path} HTTP/1.1" {status} {size}'
        lines.append(line[: draw.randint(10, 60)] if draw.random() < 0.02 else line)
    return "".join(f"{line}\n" for line in lines)


def busiest_first(rdd):
    return rdd.sortBy(lambda pair: (-pair[1], pair[0]), numPartitions=1)


def build(ssc, logs, keep):
    lines = ssc.textFileStream(logs)
    requests = lines.map(parse)
    good = requests.filter(lambda request: request is not None).cache()
    keep("bad lines", requests.filter(lambda request: request is None).count())
    keep("requests by status", good.map(lambda request: request[1]).countByValue())
    keep("bytes by path", good.map(lambda request: (request[0], request[2])).reduceByKey(operator.add))
    keep("busiest", good.map(lambda request: (request[0], 1))
         .reduceByKeyAndWindow(operator.add, operator.sub, 5, 1, filterFunc=lambda pair: pair[1] > 0)
         .transform(busiest_first), "exact")  # fmt: skip
    keep("errors in a window", good.filter(lambda request: request[1] >= 500).window(4, 2).map(lambda request: request[0]).countByValue())
    keep("requests in a window", good.countByWindow(5, 1))


def drop(run, logs, draw, second):
    """Most seconds one file; some have two, some none, and some what must not be read."""
    if second % 5 != 4:
        run.arrive(logs / f"access-{second}.log", log_file(draw, second), second - 0.3)
    if second % 4 == 0:
        run.arrive(logs / f"late-{second}.log", log_file(draw, second), second - 2.5)  # under an old time, as when it was copied here
        run.arrive(logs / f".access-{second}.swp", log_file(draw, second), second - 0.3)
        run.arrive(logs / f"rotated-{second}.log", log_file(draw, second), -3600)  # from before the job


def program(run):
    logs, draw = run.directory / "logs", random.Random(42)
    logs.mkdir()
    ssc = run.at_start(StreamingContext(run.sc, 1))
    ssc.checkpoint(str(run.directory / "checkpoint"))
    build(ssc, str(logs), run.recorder.keep)
    run.start(ssc)
    for second in range(1, SECONDS + 1):
        drop(run, logs, draw, second)
        run.tick(ssc)
    ssc.stop(False)
