"""The work of mapWithState on one partition, in the workers: pure functions of bytes and records.

One idea: a partition of state is one `bytes` object. Spark moves, caches and stores it without decoding it. A batch looks up its keys in
an index, which is read without decoding, and copies the rest. So a batch costs by its own keys, plus one copy of the bytes.

    map_with_state   State, and the update of a partition by one batch
    state_map        StateMap: a mapping over the bytes
    state_form       the stored form: its index, and new bytes
    stable_hash      the hash that chooses the partition of a key
"""

from kstream.rdd.map_with_state import State

__all__ = ["State"]
