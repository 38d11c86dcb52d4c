"""Prints the fields that the manifests of docs/deploy may have, for tests/cli/kubernetes_fields.json: names and types, without the rest.

Run it in an environment of its own with the packages kubernetes-validate and kubeflow-spark-api, when a manifest gets an object that
the file does not know:

    python scripts/kubernetes_fields.py > tests/cli/kubernetes_fields.json

A type is a scalar's name, the name of a definition, a list with the type of its items, or a map with that of its values under `*`.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from kubeflow_spark_api.models.spark_v1beta2_spark_application import SparkV1beta2SparkApplication

FOLDER = Path(__file__).parent.parent / "docs" / "deploy"
OF_KIND = {
    "v1 ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "v1 PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
    "v1 Pod": "io.k8s.api.core.v1.Pod",
    "v1 ServiceAccount": "io.k8s.api.core.v1.ServiceAccount",
    "apps/v1 Deployment": "io.k8s.api.apps.v1.Deployment",
    "batch/v1 Job": "io.k8s.api.batch.v1.Job",
    "networking.k8s.io/v1 NetworkPolicy": "io.k8s.api.networking.v1.NetworkPolicy",
    "rbac.authorization.k8s.io/v1 Role": "io.k8s.api.rbac.v1.Role",
    "rbac.authorization.k8s.io/v1 RoleBinding": "io.k8s.api.rbac.v1.RoleBinding",
    "sparkoperator.k8s.io/v1beta2 SparkApplication": "SparkV1beta2SparkApplication",
}
SCALARS = ("string", "integer", "number", "boolean")


def definitions() -> tuple[str, dict[str, Any]]:
    """The version of Kubernetes, and all definitions of it and of the operator by name."""
    found = sorted((files(kubernetes_validate) / "kubernetes-json-schema").iterdir(), key=lambda path: path.name)
    newest = [path for path in found if path.name.endswith("-local")][-1]
    of_operator: dict[str, Any] = SparkV1beta2SparkApplication.model_json_schema(by_alias=True)
    of_kubernetes: dict[str, Any] = json.loads((newest / "_definitions.json").read_text())["$defs"]
    return newest.name.removesuffix("-local"), {**of_kubernetes, **of_operator.pop("$defs"), "SparkV1beta2SparkApplication": of_operator}


def type_of(schema: dict[str, Any]) -> Any:
    """The type of a value, without null."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    kinds = schema.get("type", [])
    names = [name for name in ([kinds] if isinstance(kinds, str) else kinds) if name != "null"]
    if names == ["array"]:
        return [type_of(schema["items"])]
    if names == ["object"] and isinstance(schema.get("additionalProperties"), dict):
        return {"*": type_of(schema["additionalProperties"])}
    if len(names) == 1 and names[0] in SCALARS:
        return names[0]
    others = [one for one in schema.get("anyOf", schema.get("allOf", [])) if one.get("type") != "null"]
    return type_of(others[0]) if len(others) == 1 else "scalar"


def keep(kept: dict[str, Any], known: dict[str, Any], of_type: Any, value: Any) -> None:
    """Put the definitions into `kept` that a value of this type needs."""
    if isinstance(of_type, list):
        for one in value:
            keep(kept, known, of_type[0], one)
    elif isinstance(of_type, dict):
        for one in value.values():
            keep(kept, known, of_type["*"], one)
    elif of_type in known and "properties" in known[of_type]:
        fields = {name: type_of(schema) for name, schema in known[of_type]["properties"].items()}
        kept[of_type] = {"fields": fields, "required": known[of_type].get("required", [])}
        for name, one in value.items():
            if name in fields:
                keep(kept, known, fields[name], one)


def main() -> None:
    release, known = definitions()
    kept: dict[str, Any] = {}
    for file in sorted(FOLDER.rglob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            keep(kept, known, OF_KIND[f"{document['apiVersion']} {document['kind']}"], document)
    kinds = {kind: name for kind, name in OF_KIND.items() if name in kept}
    for definition in kept.values():  # what has no fields is a scalar: quantities, times, integers or strings
        definition["fields"] = {name: _known(of_type, known) for name, of_type in definition["fields"].items()}
    of = {"kubernetes": release, "kubeflow-spark-api": version("kubeflow-spark-api")}
    json.dump({"of": of, "kinds": kinds, "definitions": dict(sorted(kept.items()))}, sys.stdout, indent=0)
    print()


def _known(of_type: Any, known: dict[str, Any]) -> Any:
    """The type, with `scalar` for a definition without fields."""
    if isinstance(of_type, list):
        return [_known(of_type[0], known)]
    if isinstance(of_type, dict):
        return {"*": _known(of_type["*"], known)}
    return "scalar" if of_type in known and "properties" not in known[of_type] else of_type


if __name__ == "__main__":
    main()
