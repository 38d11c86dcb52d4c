"""What a worker is told of a store on Hadoop's file systems."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from kstream.checkpoint import NoLog
from kstream.conf import Settings
from kstream.errors import ConfigurationError
from kstream.spark.hadoop_file_store import HadoopPlace, not_default_nor_secret
from kstream.spark.receivers import open_received_blocks, place_of
from kstream.storage import LocalFileStore, MemoryFileStore
from kstream.storage.open import StorePlace


def setting(key: str, value: str | None, resource: str = "programmatically") -> dict[str, object]:
    return {"key": key, "value": value, "isFinal": False, "resource": resource}


def test_what_is_not_hadoops_default_and_no_secret_is_told() -> None:
    found = [
        setting("io.file.buffer.size", "4096", "core-default.xml"),
        setting("dfs.blocksize", "134217728", "hdfs-default.xml"),
        setting("fs.defaultFS", "hdfs://names", "core-site.xml"),
        setting("dfs.namenode.rpc-address", "token-svc:8020", "hdfs-site.xml"),
        setting("dfs.replication", "2", "Set by Spark from keys starting with 'spark.hadoop'"),
        setting("dfs.unset", None),
        setting("fs.s3a.secret.key", "<redacted>"),
        setting("fs.s3a.access.key", "AKIA"),
        setting("fs.azure.account.key.x.dfs.core.windows.net", "abc"),
        setting("my.Password", "pw"),
        setting("my.proxy", "http://ann:pw@proxy:3128"),
    ]
    assert not_default_nor_secret({"properties": found}) == (
        ("dfs.namenode.rpc-address", "token-svc:8020"),
        ("dfs.replication", "2"),
        ("fs.defaultFS", "hdfs://names"),
    )


def test_a_place_is_pickled_and_found_again() -> None:
    place = HadoopPlace("hdfs://names/checkpoint", (("fs.defaultFS", "hdfs://names"),))
    again = pickle.loads(pickle.dumps(place))
    assert again == place and hash(again) == hash(place)


def test_workers_find_a_disk_that_all_share_and_no_memory_of_the_drivers(tmp_path: Path) -> None:
    assert place_of(LocalFileStore(tmp_path), False) == StorePlace(str(tmp_path), True)
    assert place_of(MemoryFileStore("memory://x"), False) is None


def test_a_receivers_log_in_memory_is_refused_with_what_to_use_instead() -> None:
    nothing: Any = None
    settings = Settings({"spark.streaming.receiver.writeAheadLog.enable": "true"})
    with pytest.raises(
        ConfigurationError, match=r"executors cannot write to the checkpoint directory memory://x themselves: use .* on HDFS"
    ):
        open_received_blocks(nothing, settings, nothing, nothing, nothing, {}, MemoryFileStore("memory://x"), NoLog())
