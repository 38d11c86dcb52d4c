"""What a receiver says to the driver when the driver does not answer."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kstream.errors import RpcError, RpcRefusedError, RpcUnreachableError
from kstream.receiver.messages import TrackerLink
from kstream.receiver.received_block_handler import ReceivedBlockStoreResult
from kstream.rpc import RpcClient, of_body, to_body

BLOCK = ReceivedBlockStoreResult(10, ("1", "2"))


class Driver:
    """Gives these answers, one a call; errors are raised."""

    def __init__(self, *answers: dict[str, Any] | RpcError) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def ask(self, what: str, body: bytes) -> bytes:
        self.asked.append({"what": what, **of_body(body)})
        answer = self.answers.pop(0)
        if isinstance(answer, RpcError):
            raise answer
        return to_body(**answer)


def link(driver: Driver) -> TrackerLink:
    return TrackerLink(cast(RpcClient, driver), 0, 1, pauses_s=(0, 0))


def away() -> RpcError:
    return RpcUnreachableError("it did not answer", place="127.0.0.1:1")


@pytest.mark.parametrize("taken", [True, False])
def test_a_block_is_told_again_in_the_same_words_until_the_driver_answers(taken: bool) -> None:
    driver = Driver(away(), away(), {"added": taken})
    assert link(driver).add_block("input-0-x-1", BLOCK, {"offset": 7}) is taken
    assert len(driver.asked) == 3 and driver.asked[0] == driver.asked[1] == driver.asked[2]
    assert driver.asked[0]["what"] == "AddBlock" and driver.asked[0]["metadata"] == {"offset": 7}


def test_a_driver_that_is_gone_is_not_asked_for_ever() -> None:
    driver = Driver(*[away() for _ in range(9)])
    with pytest.raises(RpcUnreachableError):
        link(driver).add_block("input-0-x-1", BLOCK, None)
    assert len(driver.asked) == 3


def test_a_driver_that_does_not_know_the_receiver_is_asked_once() -> None:
    driver = Driver(RpcRefusedError("another application", place="127.0.0.1:1"))
    with pytest.raises(RpcRefusedError):
        link(driver).add_block("input-0-x-1", BLOCK, None)
    assert len(driver.asked) == 1


def test_an_error_that_cannot_be_told_costs_nothing_more_than_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    link(Driver(away())).report("a fault", ValueError("no"))
    assert "did not answer" in caplog.text
