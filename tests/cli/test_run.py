"""`kstream run`: what it says when a job cannot be run, and how errors and logs become lines."""

from __future__ import annotations

import json
import logging
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from pyspark import SparkContext

from kstream import StreamingContext
from kstream.cli import main, terminal
from kstream.cli import run as run_module
from kstream.cli.driver import RunEnd
from kstream.cli.exit_codes import RunCode
from kstream.cli.job import load_setup
from kstream.console import LineFormatter
from kstream.errors import ConfigurationError, one_line
from tests.cli.written_checkpoints import at, write_checkpoint


@pytest.fixture(autouse=True)
def everything_as_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Imports of a job, its folder on sys.path, and the logging set up, are taken back."""
    root, client = logging.getLogger(), logging.getLogger("kstream.kafka.librdkafka")
    handlers, level, of_client = root.handlers[:], root.level, client.handlers[:]
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)
    yield
    root.handlers[:], root.level, client.handlers[:] = handlers, level, of_client
    for name in set(sys.modules) - known:
        if name.startswith("job_"):
            del sys.modules[name]


def run(job: str, *options: str) -> Result:
    return CliRunner().invoke(main, ["run", job, "--checkpoint", "checkpoint", "--no-restart", *options])


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("job_none", "'job_none' does not name a job: give module:function, or file.py:function"),
        ("job_none:setup", "there is no module 'job_none' in "),
        ("job_none.py:setup", "there is no file job_none.py"),
        ("job_here:absent", "job_here has no function 'absent'"),
        ("job_here:NUMBER", "job_here has no function but a value 'NUMBER'"),
        ("job_here.py:absent", "job_here.py has no function 'absent'"),
    ],
)
def test_a_job_that_is_not_there_is_one_line(job: str, said: str) -> None:
    Path("job_here.py").write_text("NUMBER = 1\n")
    result = run(job)
    assert result.exit_code == RunCode.CONFIGURATION
    assert len(result.output.splitlines()) == 1 and result.output.startswith(f"kstream: {said}")


def test_a_module_that_the_job_lacks_is_not_mistaken_for_the_job() -> None:
    Path("job_needy.py").write_text("import no_such_module_anywhere\n")
    result = run("job_needy:setup")
    place = Path("job_needy.py").resolve()
    said = f"kstream: ModuleNotFoundError: No module named 'no_such_module_anywhere' ({place}, line 1)\n"
    assert (result.exit_code, result.output) == (RunCode.IMPORT, said)


def test_a_job_that_is_no_python_is_one_line_with_its_place() -> None:
    Path("job_typo.py").write_text("def setup():\n    return (\n")
    result = run("job_typo.py:setup")
    assert result.exit_code == RunCode.IMPORT
    assert len(result.output.splitlines()) == 1 and "SyntaxError: '(' was never closed" in result.output and "line 2" in result.output


def test_a_setup_that_raises_is_one_line_with_its_place() -> None:
    Path("job_raises.py").write_text("import os\n\ndef setup():\n    os.environ['NO_SUCH_VARIABLE_ANYWHERE']\n")
    result = run("job_raises:setup")
    assert result.exit_code == RunCode.FAILED
    assert len(result.output.splitlines()) == 1 and "KeyError: 'NO_SUCH_VARIABLE_ANYWHERE'" in result.output
    assert f"{Path('job_raises.py').resolve()}, line 4" in result.output


def test_a_setup_that_returns_no_context_is_a_configuration_that_cannot_work() -> None:
    Path("job_nothing.py").write_text("def setup():\n    pass\n")
    result = run("job_nothing:setup")
    assert result.exit_code == RunCode.CONFIGURATION and "setup must return the StreamingContext it has made" in result.output


JOB = """
from pyspark import SparkContext
from kstream import StreamingContext

def setup():
    ssc = StreamingContext(SparkContext.getOrCreate(), 1)
    ssc.queueStream([]).pprint()
    {line}
    return ssc
{after}
"""


@pytest.mark.parametrize(
    ("line", "after", "number", "said"),
    [
        ("ssc.start()", "", 8, "the job starts a context itself, which would run without the checkpoint checkpoint: remove ssc.start()"),
        ("ssc.checkpoint('other')", "", 8, "the job sets the checkpoint other, and `kstream run` has --checkpoint checkpoint: remove it"),
        ("", "setup().start()", 10, "the job starts a context itself"),
    ],
)
def test_a_job_that_goes_past_the_checkpoint_of_the_command_is_refused_with_its_line(
    sc: SparkContext, line: str, after: str, number: int, said: str
) -> None:
    Path("job_past.py").write_text(JOB.format(line=line, after=after))
    try:
        result = run("job_past.py:setup")
        assert StreamingContext.getActive() is None
    finally:
        if (active := StreamingContext.getActive()) is not None:
            active.stop(stopSparkContext=False)
    assert result.exit_code == RunCode.CONFIGURATION and len(result.output.splitlines()) == 1, result.output
    assert said in result.output and f"({Path('job_past.py').resolve()}, line {number})" in result.output
    assert not Path("other").exists()


def test_a_driver_gets_the_options_of_the_command_and_only_the_first_one_forgets_a_batch() -> None:
    first = run_module.command_of_driver("job:setup", "c", 17, ["--allow", "dropped:a", "--verbose"])
    assert first[1:] == [
        *("-m", "kstream.cli", "run", "job:setup", "--checkpoint", "c", "--no-restart", "--forget-batch", "17", "--allow", "dropped:a"),
        "--verbose",
    ]
    assert "--forget-batch" not in run_module.command_of_driver("job:setup", "c", None, [])


def test_a_log_of_json_objects_has_no_other_line_not_even_for_the_reason_of_the_end() -> None:
    Path("job_wrong.py").write_text(
        "from kstream.errors import ConfigurationError\ndef setup():\n    raise ConfigurationError('it is wrong')\n"
    )
    for job, said in (("job_wrong:setup", "it is wrong"), ("job_none", "'job_none' does not name a job")):
        result = run(job, "--log-format", "json")
        (line,) = result.output.splitlines()
        found = json.loads(line)
        assert result.exit_code == RunCode.CONFIGURATION and found["level"] == "ERROR" and said in found["message"]


def test_a_driver_gets_the_form_of_the_log_from_its_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(run_module, "Supervisor", lambda command, page: SimpleNamespace(run=lambda: commands.append(command(0)) or 0))
    words = ["job:setup", "--checkpoint", "c", "--log-level", "debug", "--log-format", "json"]
    assert CliRunner().invoke(main, ["run", *words]).exit_code == 0
    assert commands[0][-4:] == ["--log-level", "DEBUG", "--log-format", "json"]


def test_what_cannot_work_is_said_before_a_driver_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "Supervisor", None)
    for words in (["job_none", "--checkpoint", "c"], ["job.py:f", "--checkpoint", "c"], ["j:s", "--checkpoint", "c", "--allow", "x"]):
        result = CliRunner().invoke(main, ["run", *words])
        assert result.exit_code == RunCode.CONFIGURATION and len(result.output.splitlines()) == 1


def test_a_setup_is_found_in_a_module_and_in_a_file_and_workers_can_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("job_found.py").write_text("def setup():\n    return 'made'\n")
    assert load_setup("job_found:setup")() == "made"
    del sys.modules["job_found"]
    assert load_setup("job_found.py:setup")() == "made"
    assert os.environ["PYTHONPATH"].split(":")[0] == str(Path.cwd())


def test_an_error_of_kstream_is_one_line_with_the_users_line_without_a_traceback() -> None:
    Path("job_wrong.py").write_text(
        "from kstream import StreamingContext\nfrom kstream.errors import ConfigurationError\n"
        "def setup():\n    raise ConfigurationError('the interval\\nis wrong')\n"
    )
    result = run("job_wrong:setup")
    assert (result.exit_code, result.output) == (
        RunCode.CONFIGURATION,
        f"kstream: the interval is wrong ({Path('job_wrong.py').resolve()}, line 4)\n",
    )
    assert "Traceback" in run("job_wrong:setup", "--verbose").output


def test_a_missing_pyspark_is_one_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal.importlib.util, "find_spec", lambda name: None)
    for command in (["run", "job:setup", "--checkpoint", "c"], ["demo"]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == (RunCode.CONFIGURATION if command[0] == "run" else 1)
        assert len(result.output.splitlines()) == 1 and "pip install 'kstream-spark[spark]'" in result.output


def test_forgetting_a_batch_sets_its_plan_aside_before_anything_runs(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint")
    result = run("job_none:setup", "--forget-batch", str(at(5).milliseconds))
    assert "set aside" in result.output and str(at(5).milliseconds) in result.output
    assert [p.name for p in (tmp_path / "checkpoint" / "forgotten").iterdir()] == [f"{at(5).milliseconds:015d}-000001"]


def test_a_missing_plan_is_noted_as_done_without_before_anything_runs(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint")
    middle = at(3).milliseconds
    for plan in (tmp_path / "checkpoint" / "plans").glob(f"{middle:015d}-*"):
        plan.unlink()
    result = run("job_none:setup", "--forget-batch", str(middle))
    assert f"batch {middle} ms has no plan: this is recorded, and the stream continues without the records" in result.output
    assert [p.name for p in (tmp_path / "checkpoint" / "forgotten").iterdir()] == [f"{middle:015d}-000000"]


def test_forgetting_a_batch_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint")
    result = run("job_none:setup", "--forget-batch", "17")
    assert result.exit_code == RunCode.CONFIGURATION
    assert len(result.output.splitlines()) == 1 and "holds no plan of batch 17 ms" in result.output


class PythonException(Exception):
    """Named as Spark's."""


def test_of_an_error_that_spark_carries_the_line_is_what_the_worker_said() -> None:
    carried = PythonException(
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed\n"
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n    process()\n'
        "kstream_kafka.errors.PollTimeoutError: orders-0 gave no record\n\n\tat org.apache.spark.api(Runner.scala:1)\n"
    )
    assert one_line(carried) == "PollTimeoutError in a task: orders-0 gave no record"


def test_a_logged_error_is_one_line_unless_tracebacks_are_wanted() -> None:
    try:
        raise ConfigurationError("it is wrong")
    except ConfigurationError as e:
        record = logging.LogRecord("kstream", logging.ERROR, "f", 1, "batch %s: %s", (7, e), None)
        record.exc_info = (type(e), e, e.__traceback__)
    assert LineFormatter(tracebacks=False).format(record).endswith("ERROR   kstream: batch 7: it is wrong")
    assert "Traceback" in LineFormatter(tracebacks=True).format(record)


@pytest.mark.parametrize(
    "word", ["orders", "dropped:", "topics:", "dropped:a,dropped:b", "interval:", "interval:1s", "interval:1,dropped:a", "window:"]
)
def test_what_may_be_let_go_of_is_said_in_one_form_only(word: str) -> None:
    result = run("job_here:setup", "--allow", word)
    assert result.exit_code == RunCode.CONFIGURATION and f"--allow {word} is not known" in result.output


def test_the_last_batch_before_a_changed_interval_is_a_word_of_allow_and_every_driver_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[tuple[str, ...]] = []
    monkeypatch.setattr(
        run_module,
        "run_driver",
        lambda job, path, forget, allow, verbose, submit, supervisor: (allowed.append(allow), RunEnd(RunCode.ENDED))[1],
    )
    for options in (["--interval-changed-at", "1700000004000"], ["--allow", "interval:1700000004000"]):
        assert run("job_here:setup", *options).exit_code == RunCode.ENDED
    assert allowed == [("interval:1700000004000",)] * 2
    commands: list[list[str]] = []

    class Supervisor:
        def __init__(self, command: Callable[[int], list[str]], page: str) -> None:
            commands.extend(command(number) for number in (0, 1))
            assert page == "kstream page 'the checkpoint'"

        def run(self) -> int:
            return 0

    monkeypatch.setattr(run_module, "Supervisor", Supervisor)
    CliRunner().invoke(main, ["run", "job_here:setup", "--checkpoint", "the checkpoint", "--interval-changed-at", "1700000004000"])
    assert [command[-2:] for command in commands] == [["--allow", "interval:1700000004000"]] * 2


@pytest.mark.parametrize(("options", "shown"), [((), False), (("--verbose",), True)])
def test_verbose_shows_the_messages_of_kafkas_client_which_is_silent_otherwise(options: tuple[str, ...], shown: bool) -> None:
    Path("job_client.py").write_text(
        "from kstream_kafka.client.librdkafka import client_log\nfrom kstream.errors import ConfigurationError\n"
        "def setup():\n    client_log.warning('broker is down')\n    raise ConfigurationError('it is wrong')\n"
    )
    result = run("job_client:setup", *options)
    assert ("WARNING kstream.kafka.librdkafka: broker is down" in result.output) is shown, result.output
    assert "it is wrong" in result.output


SUBMIT = ["--master", "spark://h:7077", "--py-files", "job_zip.zip", "--archives", "env.tar.gz#environment", "--files", "f"]


def test_every_driver_gets_the_options_for_spark_from_its_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    for file in ("job_zip.zip", "env.tar.gz", "f"):
        Path(file).touch()
    commands: list[list[str]] = []
    monkeypatch.setattr(
        run_module, "Supervisor", lambda command, page: SimpleNamespace(run=lambda: commands.extend(command(n) for n in (0, 1)) or 0)
    )
    assert CliRunner().invoke(main, ["run", "job:setup", "--checkpoint", "c", *SUBMIT]).exit_code == 0
    for command in commands:
        at = command.index("--master")
        assert command[at : at + len(SUBMIT)] == SUBMIT


def test_a_file_for_the_executors_that_is_not_there_is_a_configuration_that_cannot_work() -> None:
    result = run("job_none:setup", "--py-files", "nix.zip")
    assert (result.exit_code, result.output) == (RunCode.CONFIGURATION, "kstream: there is no file nix.zip\n")


def test_a_job_imports_what_py_files_name_as_its_tasks_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    Path("lib").mkdir()
    Path("lib/job_helper.py").write_text("WORD = 'helped'\n")
    with zipfile.ZipFile("job_packed.zip", "w") as zipped:
        zipped.writestr("job_inner.py", "WORD = 'packed'\n")
    Path("job_needy.py").write_text("import job_helper, job_inner\ndef setup():\n    raise ValueError(job_helper.WORD + job_inner.WORD)\n")
    assert "ValueError: helpedpacked" in run("job_needy.py:setup", "--py-files", "lib/job_helper.py,job_packed.zip").output
