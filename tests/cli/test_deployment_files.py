"""The unit and the manifest of docs/deploy say what the commands and the exit codes mean."""

from __future__ import annotations

import configparser
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kstream.cli.exit_codes import ReadingCode, RunCode
from tests.cli.deployment_files import FINAL_FAILURES, FOLDER, parsed


@pytest.fixture
def service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    unit.optionxform = str  # pyright: ignore
    unit.read(FOLDER / "kstream.service")
    assert unit.sections() == ["Unit", "Service", "Install"]
    return unit["Service"]


@pytest.fixture
def pod() -> Any:
    deployment = yaml.safe_load((FOLDER / "kubernetes.yaml").read_text())
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]["type"]) == (1, "Recreate")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    return deployment["spec"]["template"]["spec"]


def test_the_unit_runs_the_supervisor_and_leaves_it_its_signals(service: configparser.SectionProxy) -> None:
    assert not parsed(service["ExecStart"].split())["no_restart"]
    assert (service["KillMode"], service["KillSignal"]) == ("mixed", "SIGTERM") and int(service["TimeoutStopSec"]) >= 60


def test_the_unit_starts_nothing_again_that_no_restart_can_heal(service: configparser.SectionProxy) -> None:
    assert service["Restart"] == "on-failure"
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == FINAL_FAILURES
    assert {int(code) for code in service["SuccessExitStatus"].split()} == {RunCode.INTERRUPTED, RunCode.TERMINATED}


def test_the_pod_runs_the_supervisor_as_process_1_with_time_to_stop(pod: Any) -> None:
    (container,) = pod["containers"]
    assert not parsed(container["command"])["no_restart"] and "args" not in container
    assert pod["terminationGracePeriodSeconds"] >= 60
    (mount,) = container["volumeMounts"]
    assert parsed(container["command"])["path"].startswith(mount["mountPath"])
    assert [volume["name"] for volume in pod["volumes"]] == [mount["name"]]


@pytest.mark.parametrize(
    ("probe", "passes"),
    [("livenessProbe", {0, 1, 3}), ("readinessProbe", {0})],
)
def test_a_probe_fails_for_the_exit_codes_that_it_is_for(pod: Any, tmp_path: Path, probe: str, passes: set[int]) -> None:
    (container,) = pod["containers"]
    command = container[probe]["exec"]["command"]
    asked = parsed(command[-1].partition(" >")[0].split())
    assert asked["path"] == parsed(container["command"])["path"]
    program = tmp_path / "kstream"
    for code in ReadingCode:
        program.write_text(f"#!/bin/sh\nexit {code.value}\n")
        program.chmod(0o755)
        environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
        assert (subprocess.run(command, env=environment, check=False).returncode == 0) is (code.value in passes)
    assert {code.value for code in ReadingCode} == {0, 1, 2, 3}


def test_a_pod_that_restarts_its_driver_with_the_longest_delay_is_not_killed(pod: Any) -> None:
    liveness = pod["containers"][0]["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 600 and liveness["timeoutSeconds"] >= 10
