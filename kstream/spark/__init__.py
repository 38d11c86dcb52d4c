"""The only room that knows py4j and pyspark's internals; it fills the scheduler's ports.

One idea: whatever is not public in pyspark is touched here and nowhere else, so that a new Spark version breaks one room.
"""
