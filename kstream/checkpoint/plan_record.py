"""BatchPlan ↔ its stored bytes."""

from __future__ import annotations

from kstream.batch import BatchPlan
from kstream.batch_time import Time
from kstream.checkpoint import format


def encode_plan(plan: BatchPlan) -> bytes:
    return format.encode(
        "plan",
        {
            "time": plan.time.milliseconds,
            "epoch": plan.epoch,
            "nonce": plan.nonce,
            "void": plan.void,
            "floor": plan.floor.milliseconds,
            "after": plan.after.milliseconds,
            "inputs": {str(k): dict(v) for k, v in plan.inputs.items()},
            "records": {str(k): v for k, v in plan.num_records.items()},
        },
    )


def decode_plan(data: bytes, path: str) -> BatchPlan:
    fields = format.decode("plan", data, path)
    return BatchPlan(
        time=Time(fields["time"]),
        epoch=fields["epoch"],
        nonce=fields["nonce"],
        inputs={int(k): v for k, v in fields["inputs"].items()},
        num_records={int(k): v for k, v in fields["records"].items()},
        floor=Time(fields["floor"]),
        after=Time(fields["after"]),
        void=fields["void"],
    )
