"""The process that holds blocks: found or started by whoever asks first, alive as long as its executor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kstream.errors import KStreamError, RpcRefusedError, RpcUnreachableError
from kstream.receiver import block_store_process
from kstream.receiver.block_store import END, StoreAddress, remove_blocks
from kstream.receiver.block_store_process import BlockStoreSpec, find_or_start
from kstream.receiver.executor_process import DRIVER, ExecutorProcess, executor_of, is_java, wait_for_death
from kstream.rpc import RpcClient, RpcCredentials
from tests.harness import PATIENCE

CREDENTIALS = RpcCredentials.new()


class Executor:
    """A process that does nothing until it is killed, in the place of an executor's JVM."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.order = BlockStoreSpec(
            self.process.pid, CREDENTIALS, "127.0.0.1", 1_000_000, 1_000_000, str(folder / f"executor-{self.process.pid}")
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Executor]:
    made = Executor(tmp_path)
    yield made
    made.kill()


def client_of(address: StoreAddress, credentials: RpcCredentials = CREDENTIALS) -> RpcClient:
    return RpcClient(address.host, address.port, credentials, 30)


def test_a_store_keeps_blocks_for_whoever_has_the_token(executor: Executor) -> None:
    client = client_of(find_or_start(executor.order))
    client.put("input-0-x-1", [b"one"], "memory")
    assert client.get("input-0-x-1") == [b"one"]
    remove_blocks(client, ["input-0-x-1"])
    with pytest.raises(KeyError):
        client.get("input-0-x-1")
    with pytest.raises(RpcRefusedError):
        client_of(find_or_start(executor.order), RpcCredentials.new()).get("input-0-x-1")


def test_a_store_finds_modules_whose_path_is_relative_to_the_folder_of_the_worker(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster --py-files puts `./kstream.zip` on the path of a worker, and the store runs in another folder."""
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / "sent_store.py").write_text(
        f"import runpy\nrunpy.run_module({block_store_process._MODULE!r}, run_name='__main__')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("./sent")
    monkeypatch.setattr(sys, "path", ["./sent", *sys.path[1:]])
    monkeypatch.setattr(block_store_process, "_MODULE", "sent_store")
    client = client_of(find_or_start(executor.order))
    client.put("input-0-x-1", [b"one"], "memory")
    assert client.get("input-0-x-1") == [b"one"]


def test_of_many_workers_that_ask_at_once_one_starts_the_store(executor: Executor) -> None:
    found: list[StoreAddress] = []
    asking = [threading.Thread(target=lambda: found.append(find_or_start(executor.order))) for _ in range(6)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(60)
    assert len(found) == 6 and len(set(found)) == 1


def test_a_store_dies_with_its_executor_and_leaves_nothing(executor: Executor) -> None:
    store = find_or_start(executor.order)
    client_of(store).put("input-0-x-1", [b"one"], "disk")
    assert (Path(executor.order.folder) / "blocks" / "input-0-x-1").exists()
    executor.kill()
    wait_for_death(store.pid)
    with pytest.raises(RpcUnreachableError):
        client_of(store).get("input-0-x-1")
    assert not Path(executor.order.folder).exists()


def test_a_store_that_its_driver_needs_no_more_ends_and_leaves_nothing(executor: Executor) -> None:
    """Its executor lives on: the context was stopped, and Spark was not."""
    store = find_or_start(executor.order)
    client_of(store).put("input-0-x-1", [b"one"], "disk")
    client_of(store).ask(END)
    wait_for_death(store.pid)
    assert not Path(executor.order.folder).exists()


def test_a_store_whose_executor_is_dead_before_it_begins_ends_at_once(tmp_path: Path) -> None:
    dead = Executor(tmp_path)
    dead.kill()
    try:
        wait_for_death(find_or_start(dead.order).pid)
    except KStreamError:  # it was gone before anybody saw where it listened
        pass
    assert not Path(dead.order.folder).exists()


def test_a_store_that_lives_and_does_not_answer_is_not_replaced(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has blocks."""
    store = find_or_start(executor.order)
    client_of(store).put("input-0-x-1", [b"one"], "memory")
    monkeypatch.setattr(block_store_process, "_ANSWER_TIMEOUT_S", 0.3)
    os.kill(store.pid, signal.SIGSTOP)
    try:
        with pytest.raises(RpcUnreachableError):
            find_or_start(executor.order)
    finally:
        os.kill(store.pid, signal.SIGCONT)
    monkeypatch.undo()
    assert find_or_start(executor.order) == store and client_of(store).get("input-0-x-1") == [b"one"]


def test_a_store_that_was_killed_is_replaced(executor: Executor) -> None:
    first = find_or_start(executor.order)
    os.kill(first.pid, 9)
    wait_for_death(first.pid)
    second = find_or_start(executor.order)
    assert second.pid != first.pid
    client_of(second).put("input-0-x-1", [b"one"], "memory")


def test_the_token_is_on_no_command_line(executor: Executor) -> None:
    store = find_or_start(executor.order)
    assert (
        CREDENTIALS.token
        not in subprocess.run(["ps", "-o", "args=", "-p", str(store.pid)], capture_output=True, text=True, check=True).stdout
    )


def test_a_store_that_cannot_come_up_says_why(executor: Executor) -> None:
    elsewhere = replace(executor.order, host="192.0.2.1")  # an address of no machine
    with pytest.raises(KStreamError, match=r"did not come up: .*192\.0\.2\.1"):
        find_or_start(elsewhere)


EXECUTOR = (
    "/usr/lib/jvm/bin/java -cp /spark/jars/* -Xmx512M org.apache.spark.executor.CoarseGrainedExecutorBackend --driver-url "
    "spark://CoarseGrainedScheduler@127.0.0.1:4040 --executor-id 3 --hostname 10.0.0.7 --cores 2 --app-id app-1"
)


def test_an_executor_is_known_by_its_command_line() -> None:
    assert executor_of(7, EXECUTOR.split()) == ExecutorProcess(7, "3", "10.0.0.7")
    assert is_java(EXECUTOR.split()) and not is_java(["python3", "java"]) and not is_java([])


def test_in_local_mode_the_driver_is_the_executor_whatever_the_jobs_own_arguments_are() -> None:
    command = "java -Xmx1g org.apache.spark.deploy.SparkSubmit job.py --executor-id 9 --hostname elsewhere"
    assert executor_of(7, command.split()) == ExecutorProcess(7, DRIVER, None)


def test_waiting_for_the_death_of_one_who_is_dead_returns_at_once() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    wait_for_death(process.pid)


def test_one_who_is_dead_and_not_reaped_counts_as_dead_also_where_there_is_no_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    waiting = threading.Thread(target=wait_for_death, args=(process.pid,))
    waiting.start()
    process.kill()
    waiting.join(PATIENCE)
    was_waiting = waiting.is_alive()
    process.communicate()
    assert not was_waiting
