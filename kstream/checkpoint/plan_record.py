"""BatchPlan ↔ its stored form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kstream.batch import BatchPlan
from kstream.batch_time import Time
from kstream.checkpoint import format, names
from kstream.storage import FileStore


def plan_fields(plan: BatchPlan) -> dict[str, Any]:
    """The plan as JSON values. `names` is there only where a stream has one."""
    names = {"names": {str(k): v for k, v in plan.names.items()}} if plan.names else {}
    return {
        **names,
        "time": plan.time.milliseconds,
        "epoch": plan.epoch,
        "nonce": plan.nonce,
        "void": plan.void,
        "floor": plan.floor.milliseconds,
        "after": plan.after.milliseconds,
        "inputs": {str(k): dict(v) for k, v in plan.inputs.items()},
        "records": {str(k): v for k, v in plan.num_records.items()},
    }


def plan_of(fields: Mapping[str, Any]) -> BatchPlan:
    """The inverse of `plan_fields`."""
    return BatchPlan(
        time=Time(fields["time"]),
        epoch=fields["epoch"],
        nonce=fields["nonce"],
        inputs={int(k): v for k, v in fields["inputs"].items()},
        num_records={int(k): v for k, v in fields["records"].items()},
        floor=Time(fields["floor"]),
        after=Time(fields["after"]),
        void=fields["void"],
        names={int(k): v for k, v in fields.get("names", {}).items()},
    )


def encode_plan(plan: BatchPlan) -> bytes:
    return format.encode("plan", plan_fields(plan))


def read_plan(store: FileStore, time: Time, epoch: int) -> BatchPlan:
    """The plan under the name of this batch time and epoch. One read.

    Raises:
        MissingFileError: there is none.
        CorruptRecordError: the record is damaged, or it is the plan of another batch or epoch.
    """
    name = names.plan(time, epoch)
    plan = decode_plan(store.read(name), store.path(name))
    found = {"time": plan.time.milliseconds, "epoch": plan.epoch}
    format.check_name(store.path(name), found, {"time": time.milliseconds, "epoch": epoch})
    return plan


def decode_plan(data: bytes, path: str) -> BatchPlan:
    return plan_of(format.decode("plan", data, path))
