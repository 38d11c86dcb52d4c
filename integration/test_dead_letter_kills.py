"""A driver killed twelve times while one record of twenty is poison: each poison record is a dead letter, and no other record is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kstream_kafka.planning.dead_letter import dead_letter_of

from integration.exactness.campaign import PARTITIONS, Campaign, plan_kills
from integration.kafka_broker import KafkaBroker
from integration.record_errors import letters_in


def is_poison(number: int) -> bool:
    return number % 20 == 7


@pytest.mark.timeout(600)
def test_after_twelve_kills_the_dead_letters_are_the_poison_records_and_the_sink_has_all_others(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, dead = topic(PARTITIONS), topic()

    def produce(where: str, records: list[Any]) -> None:
        numbers = [int(value.split(":")[1]) for _, value, _ in records]
        raw = [(k, b"\xff" + v.encode() if is_poison(n) else v, p) for n, (k, v, p) in zip(numbers, records, strict=True)]
        kafka.produce(where, raw)

    conf = {"spark.streaming.kstream.onRecordError": "dead-letter", "spark.streaming.kstream.deadLetterTopic": dead}
    fed = Campaign(kafka.bootstrap, name, tmp_path / "run", produce, conf, interval=1.0).kill_all(plan_kills(12, seed=16))
    letters = [dead_letter_of(message.headers()) for message in letters_in(kafka, dead)]
    assert {letter.place for letter in letters if letter} == {(name, p, n) for p, end in fed.items() for n in range(end) if is_poison(n)}
    written = [value for file in (tmp_path / "run" / "sink").glob("*.json") for value in json.loads(file.read_text())]
    assert sorted(written) == sorted(f"{p}:{n}" for p, end in fed.items() for n in range(end) if not is_poison(n))
