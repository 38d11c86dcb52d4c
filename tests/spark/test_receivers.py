"""What a start that fails leaves behind of the receivers' side."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kstream.checkpoint import NoLog
from kstream.conf import Settings
from kstream.errors import ConfigurationError
from kstream.spark import receivers
from kstream.storage import FileStore, MemoryFileStore


def servers() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("RpcServer-"))


@pytest.mark.parametrize(
    ("conf", "store"),
    [
        ({"spark.storage.maxReplicationFailures": "many"}, None),
        ({"spark.streaming.blockInterval": "long"}, None),
        ({"spark.streaming.driver.writeAheadLog.class": "no.such.Class"}, MemoryFileStore("memory://port")),
    ],
    ids=["a setting of receivers", "a setting of blocks", "the driver's log"],
)
def test_a_setting_that_cannot_be_met_leaves_no_open_port(
    monkeypatch: pytest.MonkeyPatch, conf: dict[str, str], store: FileStore | None
) -> None:
    monkeypatch.setattr(receivers, "is_local", lambda _sc: True)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    nothing: Any = None
    receiver: Any = SimpleNamespace(storageLevel=None)
    before = servers()
    with pytest.raises(ConfigurationError):
        receivers.open_received_blocks(nothing, Settings(conf), nothing, nothing, nothing, {0: receiver}, store, NoLog())
    assert servers() == before
