"""The process of a continuous task without Spark: it writes each record of its input in an epoch of its own. The argument is a TaskSpec."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.transaction import Transaction
from kstream_kafka.continuous import unbounded_reader
from kstream_kafka.continuous.epoch_writer import EpochPlace, EpochWriter, KafkaEpochOutput
from kstream_kafka.continuous.unbounded_reader import open_log
from kstream_kafka.reader.decoding import Decoding, value_only
from kstream_kafka.sink.producer_record import RecordEncoder

from integration.kafka_node import die_with_parent
from kstream.errors import KStreamError


@dataclass(frozen=True)
class TaskSpec:
    """A run of a task.

    Attributes:
        bootstrap: the brokers.
        source, target: the topics. Partition 0 of the source is read.
        place: where the receipts are.
        generation: of its assignment.
        begin, until: the positions of its first record, and behind its last one.
        dies_at: the position of the record in whose commit the process sends itself a signal.
        dies_by: the number of that signal.
    """

    bootstrap: str
    source: str
    target: str
    place: EpochPlace
    generation: int
    begin: int
    until: int
    dies_at: int = -1
    dies_by: int = 0

    def run(self) -> None:
        """Run the task until its last record is written. Errors as those of a log and of an output."""
        params = KafkaParams.parse({"bootstrap.servers": self.bootstrap})
        writer, encode = EpochWriter(0, self.generation, 1), RecordEncoder(self.place.output, self.target)
        output = KafkaEpochOutput(self.place, writer, params.sink(), encode, 60_000)
        log = open_log(params, Decoding(value_decoder=None, message_handler=value_only), {})
        partition, at = (self.source, 0), self.begin
        try:
            output.open()
            log.assign({partition: at})
            while at < self.until:
                for chunk in log.poll(1.0):
                    output.add(chunk.records)
                    if at <= self.dies_at < chunk.until:
                        _die_in_commit(self.dies_by)
                    output.end({partition: chunk.until})
                    at = chunk.until
        finally:
            log.close()
            output.close()


class TaskProcess:
    """A run in a process of its own, which ends with the thread that starts it."""

    def __init__(self, spec: TaskSpec) -> None:
        command = [sys.executable, "-m", "integration.continuous_task", json.dumps(asdict(spec))]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=die_with_parent)

    def wait_suspended(self) -> bool:
        """Wait until the process is suspended or over. Return whether it is suspended."""
        found = os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return found is not None and found.si_code == os.CLD_STOPPED

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def result(self) -> tuple[int, str]:
        """Wait for the end. Return the exit code, and the name of the error that has ended the run; "" for none."""
        said, _ = self._process.communicate(timeout=60)
        return self._process.returncode, said.decode()


def _die_in_commit(number: int) -> None:
    """Let the next commit send this process a signal, when all records and receipts are stored."""
    commit = Transaction.commit

    def die_first(self: Transaction) -> None:
        Transaction.commit = commit
        os.kill(os.getpid(), number)
        commit(self)

    Transaction.commit = die_first


def main() -> None:
    unbounded_reader.MOST_BYTES = 1  # each record is a chunk of its own
    given: dict[str, Any] = json.loads(sys.argv[1])
    try:
        TaskSpec(place=EpochPlace(**given.pop("place")), **given).run()
    except KStreamError as e:
        sys.stdout.write(type(e).__name__)


if __name__ == "__main__":
    main()
