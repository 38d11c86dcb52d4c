"""StatefulSessions: gathers the actions of each user in sessions that end when the user is idle, with mapWithState, and survives restarts.

Each line of the input is a user and an action, such as `ann login`. In one terminal `nc -lk 9999`, in another

    spark-submit stateful_sessions.py localhost:9999 /tmp/sessions --idle 30

or `python -m kstream.examples.stateful_sessions /tmp/incoming /tmp/sessions` for the files that arrive in a directory. A start
with the same checkpoint directory continues the open sessions. From files it misses nothing. From a socket it misses the lines that came
after the last completed batch.
"""

from __future__ import annotations

import argparse

from pyspark import SparkConf

from kstream import State, StateSpec, StreamingContext


def follow(user: str, action: str | None, state: State) -> str | None:
    """Add an action to the session of a user. Called for each action, and once with None when the user has been idle for too long."""
    actions = state.getOption() or []
    if state.isTimingOut():
        return f"{user} has left after: {', '.join(actions)}"
    state.update([*actions, action])
    return None


def create_context(source: str, idle: float) -> StreamingContext:
    """Make the context of a first start. `source` is HOST:PORT or a directory; `idle` is in seconds."""
    conf = SparkConf().setAppName("StatefulSessions").set("spark.streaming.kstream.receiver.onDataLoss", "skip")
    ssc = StreamingContext(conf, 1)
    host, _, port = source.rpartition(":")
    lines = ssc.socketTextStream(host, int(port)) if port.isdigit() else ssc.textFileStream(source)
    sessions = lines.map(lambda line: (line.partition(" ")[0], line.partition(" ")[2])).mapWithState(
        StateSpec.function(follow).timeout(idle)
    )
    sessions.checkpoint(1)  # stores the state of every batch, because a socket cannot be read again
    sessions.pprint()
    sessions.stateSnapshots().map(lambda session: f"{session[0]} is here: {', '.join(session[1])}").pprint()
    return ssc


def main() -> None:
    parser = argparse.ArgumentParser(description="Gathers the actions of each user in sessions that end when the user is idle.")
    parser.add_argument("source", help="HOST:PORT of a server, or a directory")
    parser.add_argument("checkpoint", help="a directory, made if it is not there")
    parser.add_argument("--idle", type=float, default=30, help="a session has ended after so many seconds without an action")
    arguments = parser.parse_args()

    ssc = StreamingContext.getOrCreate(arguments.checkpoint, lambda: create_context(arguments.source, arguments.idle))
    ssc.sparkContext.setLogLevel("WARN")  # or Spark's log would hide what is printed
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main()
