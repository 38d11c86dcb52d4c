"""The files of docs/deploy/kubernetes have fields that Kubernetes and the Spark operator know, and say what the exit codes mean.

`kubernetes_fields.json` has those fields: scripts/kubernetes_fields.py takes them from the schemas.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kstream.cli.exit_codes import RunCode
from kstream.context.settings import STOP_GRACEFULLY_ON_SHUTDOWN
from kstream.context.settings_table import check_settings
from kstream.metrics.settings import METRICS_PORT
from kstream.spark.submit_args import SUBMIT_ARGS, given_names
from tests.cli.deployment_files import FINAL_FAILURES, FOLDER, parsed

OURS = FOLDER / "kubernetes"
SCHEMA: dict[str, Any] = json.loads((Path(__file__).parent / "kubernetes_fields.json").read_text())
SCALARS = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "scalar": (str, int, float)}
FILES = sorted(FOLDER.rglob("*.yaml"))


def documents(file: Path) -> list[Any]:
    return list(yaml.safe_load_all(file.read_text()))


def document(name: str, kind: str) -> Any:
    (found,) = (one for one in documents(OURS / name) if one["kind"] == kind)
    return found


def errors(value: Any, of_type: Any, place: str = "") -> Iterator[str]:
    """What of a value its type does not allow."""
    if isinstance(of_type, list):
        if not isinstance(value, list):
            yield f"{place}: no list"
            return
        for number, one in enumerate(value):
            yield from errors(one, of_type[0], f"{place}[{number}]")
    elif isinstance(of_type, dict):
        if not isinstance(value, dict):
            yield f"{place}: no map"
            return
        for name, one in value.items():
            yield from errors(one, of_type["*"], f"{place}.{name}")
    elif of_type in SCALARS:
        if not isinstance(value, SCALARS[of_type]) or (isinstance(value, bool) and of_type != "boolean"):
            yield f"{place}: no {of_type}"
    else:
        definition = SCHEMA["definitions"].get(of_type)
        if definition is None or not isinstance(value, dict):
            yield f"{place}: no {of_type}, or scripts/kubernetes_fields.py was not run"
            return
        yield from (f"{place}: without {name}" for name in definition["required"] if name not in value)
        for name, one in value.items():
            if name in definition["fields"]:
                yield from errors(one, definition["fields"][name], f"{place}.{name}")
            else:
                yield f"{place}.{name}: unknown"


def values_of(value: Any, name: str) -> Iterator[Any]:
    """All values of that name, at any depth."""
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key == name:
            yield one
        yield from values_of(one, name)


def submitted() -> list[str]:
    """The words behind spark-submit."""
    return shlex.split((OURS / "submit.sh").read_text().partition("exec spark-submit")[2])


def settings_of(name: str) -> dict[str, str]:
    """The settings that a way gives to Spark."""
    if name == "job.yaml":
        text = document(name, "ConfigMap")["data"]["spark-defaults.conf"]
        return dict(line.split(None, 1) for line in text.splitlines() if line.startswith("spark."))
    if name == "submit.sh":
        return dict(word.split("=", 1) for word in submitted() if re.match(r"spark\.\S+=", word))
    return document(name, "SparkApplication")["spec"]["sparkConf"]


WAYS = ("job.yaml", "submit.sh", "spark-application.yaml")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_manifest_has_only_fields_that_its_kind_knows_with_values_of_their_types(file: Path) -> None:
    for one in documents(file):
        assert list(errors(one, SCHEMA["kinds"][f"{one['apiVersion']} {one['kind']}"])) == []


def test_a_field_that_does_not_exist_is_found() -> None:
    """Else the test above could not fail."""
    job = document("job.yaml", "Job")
    job["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"] = {"operators": "In", "values": "2"}
    assert list(errors(job, SCHEMA["kinds"]["batch/v1 Job"])) == [
        ".spec.podFailurePolicy.rules[0].onExitCodes: without operator",
        ".spec.podFailurePolicy.rules[0].onExitCodes.operators: unknown",
        ".spec.podFailurePolicy.rules[0].onExitCodes.values: no list",
    ]


@pytest.mark.parametrize("way", WAYS)
def test_each_setting_of_streaming_exists_and_can_be_read(way: str) -> None:
    settings = settings_of(way)
    assert len(settings) > 5 and check_settings(settings) == []


def test_the_job_fails_for_the_exit_codes_that_no_restart_can_heal_and_is_started_again_after_the_others() -> None:
    spec = document("job.yaml", "Job")["spec"]
    rules = spec["podFailurePolicy"]["rules"]
    (fails,) = (rule["onExitCodes"] for rule in rules if rule["action"] == "FailJob")
    (container,) = spec["template"]["spec"]["containers"]
    assert (set(fails["values"]), fails["operator"], fails["containerName"]) == (FINAL_FAILURES, "In", container["name"])
    assert fails["values"] == sorted(fails["values"]), "Kubernetes wants them in order"
    assert [rule["onPodConditions"] for rule in rules if rule["action"] == "Ignore"] == [[{"type": "DisruptionTarget", "status": "True"}]]
    assert spec["backoffLimit"] >= 1_000_000 and spec["template"]["spec"]["restartPolicy"] == "Never"


def test_the_job_has_one_driver_at_a_time_which_ends_with_a_failure_when_its_node_goes() -> None:
    """A graceful stop ends with 0, and a Job whose pod ends with 0 is complete."""
    spec = document("job.yaml", "Job")["spec"]
    assert (spec["parallelism"], spec["completions"], spec["podReplacementPolicy"]) == (1, 1, "Failed")
    assert STOP_GRACEFULLY_ON_SHUTDOWN.key not in settings_of("job.yaml") and STOP_GRACEFULLY_ON_SHUTDOWN.default is False
    assert RunCode.TERMINATED not in (*FINAL_FAILURES, 0)


def test_the_driver_of_the_job_knows_its_pod_and_reads_its_settings() -> None:
    (container,) = document("job.yaml", "Job")["spec"]["template"]["spec"]["containers"]
    run = parsed(container["command"])
    assert not run["no_restart"] and run["master"].startswith("k8s://https://") and "args" not in container
    variables = {one["name"]: one.get("value") for one in container["env"]}
    given = variables[SUBMIT_ARGS]
    assert given.endswith(" pyspark-shell") and "\n" not in given
    assert given_names(given, {}) >= {"spark.driver.host", "spark.kubernetes.driver.pod.name", "spark.kubernetes.namespace"}
    used = re.findall(r"\$\((\w+)\)", given)
    assert len(used) == 3 and list(variables).index(SUBMIT_ARGS) > max(map(list(variables).index, used)), "it expands earlier ones alone"
    assert variables["SPARK_CONF_DIR"] in {mount["mountPath"] for mount in container["volumeMounts"]}


@pytest.mark.parametrize("way", ["submit.sh", "spark-application.yaml"])
def test_spark_submit_runs_kstream_run_without_options_that_it_would_refuse(way: str) -> None:
    words = submitted()
    spec = document("spark-application.yaml", "SparkApplication")["spec"]
    program, *arguments = (
        words[words.index("local:///opt/orders/main.py") :] if way == "submit.sh" else [spec["mainApplicationFile"], *spec["arguments"]]
    )
    assert program.endswith("/main.py")
    run = parsed(["kstream", *arguments])
    assert (run["master"], run["py_files"], run["archives"], run["files"]) == (None,) * 4
    assert settings_of(way)[STOP_GRACEFULLY_ON_SHUTDOWN.key] == "true"


def test_the_program_of_spark_submit_is_kstream_and_has_its_exit_codes(tmp_path: Path) -> None:
    absent = f"{tmp_path / 'absent.py'}:setup"
    command = [sys.executable, str(OURS / "main.py"), "run", absent, "--checkpoint", str(tmp_path), "--no-restart"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "there is no file" in done.stderr) == (RunCode.CONFIGURATION, True), done.stderr


def test_the_operator_starts_a_failed_driver_again_and_the_driver_tries_a_failed_batch_first() -> None:
    application = document("spark-application.yaml", "SparkApplication")["spec"]
    assert (application["type"], application["mode"], application["restartPolicy"]["type"]) == ("Python", "cluster", "OnFailure")
    assert application["restartPolicy"]["onFailureRetries"] > 0
    assert int(application["sparkConf"]["spark.streaming.kstream.batch.retries"]) > 0


def test_the_files_name_one_image_one_account_one_claim_and_one_port_of_metrics() -> None:
    everything = [one for file in sorted(OURS.glob("*.yaml")) for one in documents(file)]
    named = " ".join(file.read_text() for file in [*OURS.glob("*.yaml"), OURS / "submit.sh"])
    assert set(re.findall(r"registry\.example\.com/\S+", named)) == {"registry.example.com/orders:1.0"}
    account = document("rbac.yaml", "ServiceAccount")["metadata"]["name"]
    assert {*values_of(everything, "serviceAccountName"), *values_of(everything, "serviceAccount")} == {account}
    assert set(re.findall(r"serviceAccountName[= ]+(\S+)", named)) == {account}
    claim = document("checkpoints.yaml", "PersistentVolumeClaim")["metadata"]["name"]
    assert {*values_of(everything, "claimName"), *re.findall(r"options\.claimName +(\S+)", named)} == {claim}
    ports = {int(port) for port in values_of(everything, "containerPort")}
    (policy,) = documents(OURS / "network-policy.yaml")
    assert ports == {port["port"] for rule in policy["spec"]["ingress"] for port in rule.get("ports", [])}
    assert {int(settings_of(way)[METRICS_PORT.key]) for way in WAYS} == ports


def test_the_policy_of_the_network_selects_driver_and_executors() -> None:
    (policy,) = documents(OURS / "network-policy.yaml")
    labels = policy["spec"]["podSelector"]["matchLabels"]
    assert policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"] == labels
    pods = [document("job.yaml", "Job")["spec"]["template"], document("driver-pod.yaml", "Pod"), document("executor-pod.yaml", "Pod")]
    application = document("spark-application.yaml", "SparkApplication")["spec"]
    of_pods = [*(pod["metadata"]["labels"] for pod in pods), application["driver"]["labels"], application["executor"]["labels"]]
    of_pods.append({key.rpartition(".")[2]: value for key, value in settings_of("job.yaml").items() if ".executor.label." in key})
    assert all(one == labels for one in of_pods)


def test_a_driver_that_stops_gracefully_has_the_time() -> None:
    application = document("spark-application.yaml", "SparkApplication")["spec"]["driver"]
    for pod in (document("driver-pod.yaml", "Pod")["spec"], application):
        assert pod["terminationGracePeriodSeconds"] >= 120
