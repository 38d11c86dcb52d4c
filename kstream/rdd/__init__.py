"""From a plan to an RDD: what the workers do to a partition, as pure functions of bytes and records.

One idea: a partition of state is one `bytes` object. Spark moves, caches and stores it without looking into it; a batch looks up the
keys it has, in an index that is read without decoding, and copies the rest. So a batch costs what it touches, plus a copy.
"""

from kstream.rdd.map_with_state import State

__all__ = ["State"]
