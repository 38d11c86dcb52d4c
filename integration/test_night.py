"""Short nights of jobs: what is away comes back, one `kstream run` goes on, and in the end every record is counted exactly once.

The full nights are `make soak`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.kafka_broker import running_broker
from integration.night.campaign import BROKER, SHORT
from integration.night.direct_night import DirectNight
from integration.night.receiver_night import ReceiverNight
from integration.s3_server import running_s3
from integration.zookeeper_server import running_zookeeper


@pytest.mark.timeout(900)
def test_after_a_night_of_outages_and_kills_every_record_is_counted_once_and_the_log_is_short(tmp_path: Path) -> None:
    with running_broker(tmp_path / "broker", BROKER) as broker, running_s3() as s3:
        verdict = DirectNight(tmp_path, broker, s3, SHORT).run()
    print(verdict)
    assert verdict.breaches() == []
    assert verdict.restarts == 2, "only the killed driver and the killed JVM cost a restart"


@pytest.mark.timeout(900)
def test_after_a_night_of_a_receiver_no_record_is_lost_and_its_offsets_are_the_ends_of_the_log(tmp_path: Path) -> None:
    with running_broker(tmp_path / "broker", BROKER) as broker, running_zookeeper(tmp_path / "zookeeper") as zookeeper:
        night = ReceiverNight(tmp_path, broker, zookeeper, SHORT)
        verdict = night.run()
        print(verdict, night.came_again())
    assert verdict.breaches() == []
    assert verdict.restarts == 2, "only the killed driver and the killed JVM cost a restart"
