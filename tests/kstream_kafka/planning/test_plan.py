"""The stored form of a plan of Kafka."""

from __future__ import annotations

import json
from typing import Any

from kstream_kafka.planning.packing import Packing
from kstream_kafka.planning.plan import KAFKA, KafkaPlan

from kstream.batch.plan import kind_of
from kstream.offsets.offset_range import LostRange, OffsetRange

STORED = (
    '{"ahead":[["b",1]],"from_epochs":[2,null],"kind":"kafka","leader_epochs":[3,null],"lost":[{"cause":"retention","detail":"gone",'
    '"from":1,"partition":0,"topic":"a","until":5}],"packing":[4,1000],"ranges":[["a",0,5,9],["b",1,7,7]],"topic_ids":{"a":"i"},'
    '"until":[["a",0,20]]}'
)


def test_the_stored_form_of_a_plan_and_that_of_before_without_its_kind():
    """Golden bytes: what a restart finds must not depend on the version."""
    ranges, lost = [OffsetRange("a", 0, 5, 9), OffsetRange("b", 1, 7, 7)], [LostRange("a", 0, 1, 5, "retention", "gone")]
    rest: dict[str, Any] = {"ahead": frozenset({("b", 1)}), "stopping_offsets": {("a", 0): 20}, "lost": lost, "packing": Packing(4, 1000)}
    plan = KafkaPlan(ranges, [3, None], [2, None], {"a": "i"}, **rest)
    assert json.dumps(plan.encode(), sort_keys=True, separators=(",", ":")) == STORED
    assert KafkaPlan.decode(json.loads(STORED)) == KafkaPlan.decode(json.loads(STORED.replace('"kind":"kafka",', ""))) == plan
    assert kind_of(json.loads(STORED)) == kind_of(json.loads(STORED.replace('"kind":"kafka",', ""))) == KAFKA
