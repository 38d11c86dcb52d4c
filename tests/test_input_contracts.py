"""The contract of inputs, held by those that kstream has and by one that a user might write."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from kstream.batch import JsonPlan
from kstream.batch_time import Time
from kstream.checkpoint import NoLog
from kstream.dstream import FileInputDStream, InputDStream, QueueInputDStream, ReceiverInputDStream
from kstream.dstream.ports import InputServices
from kstream.errors import BlocksLostError, NotRecoverableError
from kstream.receiver import Receiver
from kstream.receiver.messages import TrackerLink
from kstream.receiver.received_block_handler import ReceivedBlockStoreResult
from kstream.testing import ManualClock
from kstream.testing.input_dstream_contract import ZERO, InputDStreamContract, RestorableInputDStreamContract, batch_time
from tests.fakes import FakeHost, FakeRDD
from tests.harness import LogInput
from tests.inputs import file_stream, write
from tests.receivers import InDriver, received_in_driver


def host() -> Any:
    return FakeHost({})


class Lines(InputDStream[JsonPlan]):
    """What a user might write: the lines of one file that grows, by byte offsets. Thirty lines."""

    def __init__(self, ssc: Any, path: Path) -> None:
        super().__init__(ssc)
        self.path, self.offset = path, 0

    def starting_point(self) -> JsonPlan:
        return JsonPlan({"from": self.offset, "until": self.offset})

    def plan(self, time: Time) -> JsonPlan:
        end = self.path.stat().st_size if self.path.exists() else 0
        return JsonPlan({"from": self.offset, "until": end})

    def planned(self, time: Time, plan: JsonPlan) -> None:
        self.offset = plan["until"]

    def rdd(self, time: Time, plan: JsonPlan) -> Any:
        whole = self.path.read_bytes() if self.path.exists() else b""
        return self.ssc.sparkContext.parallelize(whole[plan["from"] : plan["until"]].decode().splitlines())


class TestAnInputOfTheUsers(RestorableInputDStreamContract):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "grows"

    def make_input(self) -> InputDStream:
        return Lines(host(), self.path)

    def produce(self, stream: InputDStream, time: Time, count: int) -> list[Any]:
        lines = [uuid.uuid4().hex for _ in range(count)]
        with self.path.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        return lines


class TestTheListOfOurOwnTests(RestorableInputDStreamContract):
    @pytest.fixture(autouse=True)
    def _log(self) -> None:
        self.log: list[str] = []

    def make_input(self) -> InputDStream:
        return LogInput(host(), self.log)

    def produce(self, stream: InputDStream, time: Time, count: int) -> list[Any]:
        self.log += (made := [uuid.uuid4().hex for _ in range(count)])
        return made


class TestFiles(RestorableInputDStreamContract):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.directory = tmp_path
        self.clock = ManualClock(ZERO)

    def make_input(self) -> FileInputDStream:
        return file_stream(host(), str(self.directory), self.clock)

    def produce(self, stream: InputDStream, time: Time, count: int) -> list[Any]:
        lines = [uuid.uuid4().hex for _ in range(count)]
        write(self.directory / lines[0], "\n".join(lines), time.milliseconds - 1)
        return lines


class TestAReceiver(InputDStreamContract):
    def make_input(self) -> ReceiverInputDStream:
        stream, clock = ReceiverInputDStream(host(), Nothing()), ManualClock(ZERO)
        self.executor = InDriver(clock)
        receivers = {stream.id: stream.receiver}
        self.received = received_in_driver(self.executor, clock, lambda _event: None, receivers, None, NoLog())
        self.executor.start_stores()
        return stream

    def services(self, stream: InputDStream) -> InputServices:
        return InputServices(received_blocks=self.received)

    def produce(self, stream: Any, time: Time, count: int) -> list[Any]:
        made = [uuid.uuid4().hex for _ in range(count)]
        link: Any = TrackerLink(self.executor, stream.id, 0)  # pyright: ignore[reportArgumentType]
        for record in made:
            self.executor.blocks[record] = [record]
            assert link.add_block(record, ReceivedBlockStoreResult(1, ("driver",)), None)
        return made

    def test_its_blocks_die_with_the_driver_and_that_is_said(self) -> None:
        stream, _ = self.started()
        self.produce(stream, batch_time(1), 2)
        plan, _records = self.batch(stream, 1)
        second = self.make_input()
        second.restored(batch_time(1), plan)
        second.remember_plan(batch_time(1), plan)
        second.start(self.services(second))
        with pytest.raises(BlocksLostError):
            second.compute(batch_time(1))


class Nothing(Receiver):
    def onStart(self) -> None:
        pass

    def onStop(self) -> None:
        pass


class TestAQueue(InputDStreamContract):
    def make_input(self) -> QueueInputDStream:
        return QueueInputDStream(host(), [], True, None, FakeRDD)

    def produce(self, stream: Any, time: Time, count: int) -> list[Any]:
        made = [uuid.uuid4().hex for _ in range(count)]
        stream._queue.append(made)
        return made

    def test_it_cannot_be_taken_over(self) -> None:
        """Spark behaviour SC18."""
        _stream, point = self.started()
        with pytest.raises(NotRecoverableError):
            self.make_input().restored(batch_time(0), point)
