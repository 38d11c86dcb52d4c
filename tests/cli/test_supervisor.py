"""The supervisor, with small programs as drivers. It runs in a process of its own, because it reaps every child of its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from kstream.cli.exit_codes import RunCode
from kstream.cli.supervised import REASON, SUPERVISOR, join_supervisor

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 60
ALONE = f"""
import sys, types
sys.path.insert(0, {str(ROOT)!r})
sys.modules["kstream.cli"] = types.ModuleType("kstream.cli")
sys.modules["kstream.cli"].__path__ = [{str(ROOT / "kstream" / "cli")!r}]
"""
"""Loads modules of the room without all of its commands, which takes longer than everything else here."""
SUPERVISE = """
import json, logging, sys
from kstream.cli.supervisor import RestartPolicy
from kstream.cli.supervisor import Supervisor

drivers, first_s, grace_s = json.loads(sys.argv[1])
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")


def command(number):
    return [sys.executable, "-S", "-c", drivers[number]]


sys.exit(Supervisor(command, RestartPolicy(first_s=first_s), grace_s=grace_s, page="kstream page /c").run())
"""
JOIN = ALONE + "from kstream.cli.supervised import join_supervisor; way = join_supervisor()\n"
ENDS = "raise SystemExit(0)"
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
ASKS_TO_STOP = "import os, signal\nos.kill(os.getppid(), signal.SIGTERM)\n"


@dataclass(frozen=True)
class Ended:
    """A supervisor that has ended: its exit code, and the lines that it has logged."""

    code: int
    lines: list[str]


def start(*drivers: str, first_s: float = 0, grace_s: float = SECONDS, before: str = "") -> subprocess.Popen[str]:
    """Start a supervisor whose first driver runs the first program, and so on. `before` runs in the supervisor's process first.

    It heeds SIGHUP, also if these tests were started under `nohup`.
    """
    heeds = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    return subprocess.Popen(
        [sys.executable, "-c", ALONE + heeds + before + SUPERVISE, json.dumps([drivers, first_s, grace_s])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> Ended:
    """Wait for the end of a supervisor."""
    try:
        _, said = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    return Ended(process.returncode, said.splitlines())


def supervise(*drivers: str, **options: float) -> Ended:
    return end(start(*drivers, **options))


def ends_with(code: int) -> str:
    return f"raise SystemExit({code})"


@pytest.mark.parametrize("code", [code for code in RunCode if code.final])
def test_a_driver_with_a_final_code_is_not_started_again(code: RunCode) -> None:
    ended = supervise(ends_with(code))
    assert ended.code == code and len(ended.lines) == 1
    assert code.meaning in ended.lines[0] and ended.lines[0].endswith(f"it is not started again (exit code {code.value})")


@pytest.mark.parametrize("code", [code for code in RunCode if not code.final and code != RunCode.KILLED])
def test_a_driver_that_failed_is_started_again_until_it_ends(code: RunCode) -> None:
    ended = supervise(ends_with(code), ends_with(code), ENDS)
    assert ended.code == 0 and len(ended.lines) == 3
    for number, line in enumerate(ended.lines[:2], 1):
        assert (
            f": {code.meaning}; it is started again in 0 s (restart {number})" in line
            and "page" not in line
            and line.startswith("WARNING driver ")
        )


def test_a_killed_driver_is_started_again_and_the_line_names_the_signal() -> None:
    ended = supervise(KILLED, ENDS)
    assert ended.code == 0 and ": a signal killed it: SIGKILL; it is started again" in ended.lines[0]


def test_the_line_of_an_end_has_the_reason_that_the_driver_tells() -> None:
    tells = JOIN + "way.tell('batch 5 failed:\\nno JSON.'); raise SystemExit(6)"
    ended = supervise(tells, ENDS)
    assert ended.code == 0 and ": a batch failed: batch 5 failed: no JSON; it is started again" in ended.lines[0]


def test_an_exit_code_without_a_meaning_is_a_failure() -> None:
    assert ": the driver failed; it is started again" in supervise(ends_with(77), ENDS).lines[0]


def without_memory(times: int) -> str:
    """The first so many drivers find no memory."""
    return (
        f"import subprocess\nreal, left = subprocess.Popen, [1] * {times}\n"
        "def popen(*words, **options):\n"
        "    if not left:\n        return real(*words, **options)\n"
        "    left.pop()\n    raise OSError(12, 'Cannot allocate memory')\n"
        "subprocess.Popen = popen\n"
    )


def test_a_program_that_cannot_be_run_is_tried_again_and_not_the_end() -> None:
    ended = end(start(ENDS, ENDS, before=without_memory(1)))
    assert ended.code == 0 and "no process could be started: Cannot allocate memory; it is started again" in ended.lines[0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lists the descriptors of a process")
def test_a_program_that_cannot_be_run_costs_no_descriptor() -> None:
    # the least of many counts: the parent may still hold its ends of the pipes of this process
    listed = "min(len(os.listdir(f'/proc/{os.getppid()}/fd')) for _ in range(2000))"
    counts = f"import os, sys; print('descriptors', {listed}, file=sys.stderr)"
    told = [[line for line in end(start(*[counts] * 4, before=without_memory(n))).lines if "descriptors" in line] for n in (0, 3)]
    assert told[0] == told[1] != []


def test_sigterm_is_forwarded_once_and_the_driver_decides_the_exit_code() -> None:
    waits = (
        "import os, signal, sys\nseen = []\nsignal.signal(signal.SIGTERM, lambda *_: seen.append(1))\n"
        "os.kill(os.getppid(), signal.SIGTERM)\nwhile not seen: signal.sigtimedwait([], 0.01)\n"
    )
    ended = supervise(waits + "print(len(seen), file=sys.stderr); raise SystemExit(0)")
    assert ended.code == 0 and "1" in ended.lines
    assert [line for line in ended.lines if "SIGTERM: forwarded to driver" in line and "a second signal kills it" in line]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_driver_that_the_signal_ends_before_it_listens_has_its_exit_code(number: signal.Signals, code: int) -> None:
    asks = f"import os, signal; signal.signal(signal.SIGINT, signal.SIG_DFL); os.kill(os.getppid(), {int(number)}); signal.pause()"
    ended = supervise(asks)
    assert ended.code == code and ended.lines[-1].endswith(f"it is not started again (exit code {code})")


def test_a_second_signal_kills_a_driver_that_does_not_stop() -> None:
    stubborn = (
        "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os.kill(os.getppid(), signal.SIGTERM))\n"
        "os.kill(os.getppid(), signal.SIGTERM)\nwhile True: signal.pause()\n"
    )
    ended = supervise(stubborn)
    assert ended.code == 143 and "a signal killed it: SIGKILL; it is not started again" in ended.lines[-1]


def test_a_failed_batch_during_the_stop_has_its_exit_code_and_is_not_started_again() -> None:
    fails = (
        "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(6))\nos.kill(os.getppid(), signal.SIGTERM)\nsignal.pause()"
    )
    assert supervise(fails).code == RunCode.FAILED_BATCH


def test_a_signal_during_the_delay_ends_the_supervisor_at_once() -> None:
    process = start(ends_with(6), first_s=3600)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.endswith("; it is started again in 60 s (restart 1). Its page until then: kstream page /c\n")
    process.send_signal(signal.SIGTERM)
    assert end(process) == Ended(143, ["INFO SIGTERM: no driver is started again"])


def test_a_supervisor_without_an_interrupt_key_leaves_it_ignored() -> None:
    """A shell starts a background job so. `nohup` does the same with SIGHUP."""
    asks = "import os, signal; os.kill(os.getppid(), signal.SIGHUP); raise SystemExit(0)"
    ended = end(start(asks, before="import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"))
    assert ended.code == 0 and "SIGHUP" not in "".join(ended.lines)


FOREVER = "import signal; signal.pause()"
SPAWNS = (
    "import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-S', '-c', {child!r}], **{options})\nprint(child.pid, flush=True)\n"
)


def pids(process: subprocess.Popen[str]) -> tuple[Ended, list[int]]:
    """The end of a supervisor, and the numbers that its drivers have printed."""
    out, said = process.communicate(timeout=SECONDS)
    return Ended(process.returncode, said.splitlines()), [int(word) for word in out.split()]


def lives(pid: int) -> bool:
    """Whether a process runs. One that has ended, and of which its parent has not asked, does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lists the processes of a session")
def test_no_process_of_a_driver_lives_beside_the_next_one() -> None:
    spawns = SPAWNS.format(child=FOREVER, options={}) + KILLED
    ended, (grandchild,) = pids(start(spawns, ENDS, grace_s=0))
    assert ended.code == 0 and not lives(grandchild)
    assert any("1 of its processes lived on and are killed" in line for line in ended.lines)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lists the processes of a session")
def test_a_process_of_a_driver_gets_time_to_end() -> None:
    """Spark's JVM removes its directories when the driver has died."""
    tidy = "import os, sys\nsys.stdin.read()\nprint(os.getpid(), flush=True)"
    spawns = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-S', '-c', " + repr(tidy) + "], stdin=subprocess.PIPE)\n" + KILLED
    ended, tidied = pids(start(spawns, ENDS))
    assert ended.code == 0 and len(tidied) == 1 and not lives(tidied[0])
    assert not any("are killed" in line for line in ended.lines)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lists the processes of a session")
def test_a_process_with_a_session_of_its_own_is_left_alone() -> None:
    spawns = (
        SPAWNS.format(child=FOREVER, options={"start_new_session": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL})
        + KILLED
    )
    ended, (daemon,) = pids(start(spawns, ENDS, grace_s=0))
    try:
        assert ended.code == 0 and lives(daemon)
    finally:
        os.kill(daemon, signal.SIGKILL)


ORPHAN = (
    "import os, signal, subprocess, sys, time\n"
    "fork = 'import os, sys; pid = os.fork(); pid and (print(pid, flush=True), os._exit(0)); sys.stdin.read()'\n"
    "child = subprocess.Popen([sys.executable, '-S', '-c', fork], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n"
    "pid = int(child.stdout.readline()); child.wait(); child.stdin.close()\n"
    "while os.path.exists(f'/proc/{pid}'): time.sleep(0.01)\n"
)
"""A driver waits until its grandchild has left no zombie: by then its supervisor has handled every signal that was sent before."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux gives orphans to the next ancestor that wants them")
def test_an_orphan_is_reaped_while_its_driver_runs() -> None:
    """As process 1 of a container."""
    assert supervise(ORPHAN + ENDS).code == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux gives orphans to the next ancestor that wants them")
def test_a_terminal_that_closes_hangs_up_twice_and_kills_no_driver() -> None:
    """The shell and the kernel send SIGHUP both. The driver finishes its batches after the first one."""
    hung_up = (
        "import os, signal\nseen = []\nsignal.signal(signal.SIGTERM, lambda *_: seen.append(1))\n"
        "os.kill(os.getppid(), signal.SIGHUP)\nwhile not seen: signal.sigtimedwait([], 0.01)\n"
        "os.kill(os.getppid(), signal.SIGHUP)\n"
    )
    ended = supervise(hung_up + ORPHAN + ENDS)
    assert ended.code == 0 and "the job has ended; it is not started again (exit code 0)" in ended.lines[-1]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has a parent-death signal")
def test_a_driver_dies_with_its_supervisor() -> None:
    waits = JOIN + "import os, signal\nprint(os.getpid(), flush=True)\nos.kill(os.getppid(), signal.SIGKILL)\nsignal.pause()"
    process = start(waits)
    out, _ = process.communicate(timeout=SECONDS)  # the pipe ends when the driver, too, has ended
    assert process.returncode == -signal.SIGKILL and out.strip().isdigit()


def test_a_process_without_a_supervisor_joins_none_and_children_of_a_driver_are_no_drivers() -> None:
    assert join_supervisor({}) is None
    reader, writer = os.pipe()
    looks = JOIN + "import os\nassert 'KSTREAM' not in str(os.environ)\nway.tell('x' * 9000)\n"
    environment = {**os.environ, SUPERVISOR: str(os.getpid()), REASON: str(writer)}
    subprocess.run([sys.executable, "-c", looks], env=environment, pass_fds=[writer], check=True)
    os.close(writer)
    assert len(os.read(reader, 10_000)) == 4096, "a longer text could block"
    os.close(reader)
