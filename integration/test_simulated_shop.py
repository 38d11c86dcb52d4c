"""The figures in the pictures of the docs belong together: they are those of one job."""

from __future__ import annotations

import re

import pytest

from integration.simulated_shop import BATCHES, HELD, INTERVAL_MS, SimulatedShop

NOW = 1_795_503_600_000


@pytest.fixture(scope="module", params=[False, True], ids=["well", "trouble"])
def shop(request: pytest.FixtureRequest) -> SimulatedShop:
    return SimulatedShop(NOW, trouble=request.param)


def test_as_many_batches_have_ended_as_there_were_intervals(shop: SimulatedShop) -> None:
    head = shop.source.statistics()
    held, running = head["numHeldBatches"], head["numActiveBatches"]
    assert held is not None and running is not None
    assert head["numTotalCompletedBatches"] == (NOW - head["startTimeMs"]) // INTERVAL_MS - held - running
    assert head["numTotalCompletedBatches"] == BATCHES - (HELD or 1 if held else running)
    assert NOW <= head["nowMs"] < NOW + INTERVAL_MS
    listed = shop.source.batches()
    assert sum(bucket["numBatches"] for bucket in shop.source.timeline()["buckets"]) > len(listed)
    assert head["numProcessedRecords"] is not None and head["numReceivedRecords"] is not None
    ended = sum(batch["inputSize"] or 0 for batch in listed if batch["status"] in ("FAILED", "PROCESSING"))
    assert head["numReceivedRecords"] - head["numProcessedRecords"] == ended


def test_no_batch_has_figures_that_its_state_cannot_have(shop: SimulatedShop) -> None:
    for batch in shop.source.batches():
        assert (batch["inputSize"] is None) == (batch["status"] == "HELD")
        assert (batch["totalDelay"] is None) == (batch["status"] in ("HELD", "PROCESSING"))


def test_the_record_of_the_error_is_in_the_batch_and_of_its_interval(shop: SimulatedShop) -> None:
    for batch in shop.source.batches(frozenset({"FAILED"})):
        detail = shop.source.batch(batch["batchTimeMs"])
        assert detail is not None and batch["firstFailureReason"] == detail["operations"][1]["error"]
        named = re.search(r"record orders-3@(\d+) \(", batch["firstFailureReason"] or "")
        assert named is not None
        (read,) = [r for r in detail["inputs"][0]["offsets"] if (r["topic"], r["partition"]) == ("orders", 3)]
        assert read["fromOffset"] <= int(named[1]) < read["untilOffset"]
