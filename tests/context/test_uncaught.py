"""What a program prints of an error of its streams that it does not catch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from kstream.context.uncaught import short_form
from kstream.errors import FencedError, add_note, add_worker_traceback

PROGRAM = """
from pyspark import SparkConf
from kstream import StreamingContext


def parse(line):
    return int(line)


def checked(line):
    return parse(line)


ssc = StreamingContext(SparkConf().setMaster("local[1]").setAppName("job").set("spark.ui.enabled", "false"), 0.5)
ssc.queueStream([["1"], ["x"]]).map(checked).foreachRDD(lambda rdd: rdd.foreach(print))
ssc.start()
print("started", flush=True)
try:
    ssc.awaitTermination()
except ValueError as e:
    print("caught", type(e.__cause__).__name__, flush=True)
    raise
"""


STATE_PROGRAM = """
import sys
from pyspark import SparkConf
from kstream import StreamingContext
from kstream.testing import ManualClock


def total(state, values):
    return sum(values) + (state or 0)


clock = ManualClock(0)
ssc = StreamingContext(SparkConf().setMaster("local[1]").setAppName("job").set("spark.ui.enabled", "false"), 5, clock=clock)
ssc.checkpoint(sys.argv[1])
ssc.queueStream([[("tea", 1), ("tea", 2)]]).updateStateByKey(total).pprint()
ssc.start()
clock.advance(5_000)
ssc.awaitTermination()
"""


def test_an_error_in_the_function_of_a_state_is_told_in_at_most_12_lines_with_the_function_and_its_line(tmp_path: Path) -> None:
    """Each try brought the traceback of the worker twice, by Spark's BlockManager, and the file of kstream. There is one batch."""
    job = tmp_path / "job.py"
    job.write_text(STATE_PROGRAM)
    done = subprocess.run([sys.executable, str(job), str(tmp_path / "c")], capture_output=True, text=True, timeout=300, check=False)
    lines = done.stderr.splitlines()
    told = lines[next(i for i, line in enumerate(lines) if line.startswith("the state of <StateDStream")) :]
    assert done.returncode == 1 and len(told) <= 12 and not any("BlockManager" in line or "pickled" in line for line in lines)
    assert told[-2] == "TypeError: 'NoneType' object is not iterable" and told[-1].endswith(f"function total of {job}:9")
    assert any(line.startswith("Error running job") and f"function total of {job}:9" in line for line in told)


def test_a_program_that_waits_prints_a_failed_task_in_at_most_12_lines(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(job)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1 and "caught Py4JJavaError" in done.stdout
    lines = done.stderr.splitlines()
    told = lines[next(i for i, line in enumerate(lines) if line.startswith("Error running job")) :]
    assert len(told) <= 12 and not any("Executor" in line or "TaskSetManager" in line for line in lines)
    assert told[1:] == [
        "Traceback (most recent call last):",
        f'  File "{job}", line 19, in <module>',
        "    ssc.awaitTermination()",
        f'  File "{job}", line 15, in <lambda>',
        '    ssc.queueStream([["1"], ["x"]]).map(checked).foreachRDD(lambda rdd: rdd.foreach(print))',
        f'  File "{job}", line 11, in checked',
        "    return parse(line)",
        f'  File "{job}", line 7, in parse',
        "    return int(line)",
        "ValueError: invalid literal for int() with base 10: 'x'",
        told[-1],
    ]
    assert told[-1].startswith(f"in output operation 0, foreachRDD at {job}:15, of batch ")


INTERRUPTED_PROGRAM = """
import sys, time
from pyspark import SparkConf
from kstream import StreamingContext


def slow(number):
    time.sleep(1)
    return number, number


def write(rdd):
    print("begun", flush=True)
    rdd.context.parallelize(range(40), 2).map(slow).reduceByKey(max).collect()


ssc = StreamingContext(SparkConf().setMaster("local[2]").setAppName("job").set("spark.ui.enabled", "false"), 0.5)
ssc.queueStream([[1]]).foreachRDD(write)
ssc.start()
ssc.awaitTermination()
"""


def test_ctrl_c_in_the_middle_of_a_batch_prints_where_the_program_waited_and_nothing_of_the_jvm(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(INTERRUPTED_PROGRAM)
    command = [sys.executable, str(job)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as program:
        try:
            assert program.stdout is not None and program.stdout.readline() == "begun\n"
            os.killpg(program.pid, signal.SIGINT)  # as a terminal: to all processes in the foreground
            _, errors = program.communicate(timeout=120)  # until the JVM has ended, too
        finally:
            program.kill()
    assert program.returncode == -signal.SIGINT
    lines = errors.splitlines()
    assert lines[lines.index("Traceback (most recent call last):") :] == [
        "Traceback (most recent call last):",
        f'  File "{job}", line 20, in <module>',
        "    ssc.awaitTermination()",
        "KeyboardInterrupt",
    ]
    assert not any(" ERROR " in line for line in lines), errors
    assert sum("kstream.log()" in line for line in lines) == 1, "nobody has set the log up"


def raised(error: Exception) -> Exception:
    """The error with a traceback of two frames of this file."""
    try:
        _raise(error)
    except Exception as e:
        return e
    raise AssertionError


def _raise(error: Exception) -> None:
    raise error


def test_frames_of_the_driver_and_of_the_task_stand_in_one_traceback_with_the_context_below() -> None:
    error = raised(ValueError("no number"))
    frames = '  File "/job.py", line 3, in parse\n    return int(x)\n           ^^^^^^\n'
    add_worker_traceback(error, f"Traceback (most recent call last):\n{frames}ValueError: no number")
    add_note(error, "in output operation 0, of batch 1000 ms: record orders-0@7")
    text = short_form(error, error.__traceback__)
    assert text is not None
    lines = text.splitlines()
    assert lines[-4:] == [
        '  File "/job.py", line 3, in parse',
        "    return int(x)",
        "ValueError: no number",
        "in output operation 0, of batch 1000 ms: record orders-0@7",
    ]
    assert lines[-5] == "    raise error" and "^" not in text


def test_a_long_message_and_many_frames_are_cut() -> None:
    error = raised(ValueError("\n".join(map(str, range(50)))))
    frames = "".join(f'  File "/job.py", line {n}, in f\n    f()\n' for n in range(50))
    add_worker_traceback(error, f"Traceback (most recent call last):\n{frames}ValueError: 0")
    add_note(error, "in output operation 0")
    text = short_form(error, error.__traceback__)
    assert text is not None and len(text.splitlines()) <= 13 and "line 49, in f" in text


def test_indented_lines_of_a_message_are_no_frames() -> None:
    error = raised(ValueError("1 validation error\n  price\n    no number\n    see https://errors.example/number"))
    words = f'Traceback (most recent call last):\n  File "/job.py", line 3, in parse\n    return int(x)\nValueError: {error}'
    add_worker_traceback(error, words)
    text = short_form(error, error.__traceback__)
    assert text is not None and "line 3, in parse\n    return int(x)\nValueError: 1 validation error\n  price\n" in text


def test_an_error_of_kstream_needs_no_frames_and_a_bug_of_it_keeps_all() -> None:
    fenced, bug = FencedError("another driver", path="/c", epoch=1, newer_epoch=2), AttributeError("no such thing")
    assert short_form(fenced, None) == "Traceback (most recent call last):\nkstream.errors.FencedError: another driver\n"
    assert short_form(bug, None) is None


@pytest.mark.parametrize("name", ["Py4JJavaError", "PythonException"])
def test_of_an_error_that_only_spark_could_carry_the_workers_line_is_printed(name: str) -> None:
    error = type(name, (Exception,), {})("a hundred lines\n" * 100)
    add_worker_traceback(error, 'Traceback (most recent call last):\n  File "/job.py", line 3, in parse\n    x\nmy.Local: no')
    text = short_form(error, None)
    assert text is not None and "my.Local: no" in text and "hundred" not in text
    assert traceback.format_exception_only(error)
