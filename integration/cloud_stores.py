"""The contract of a store on Azurite. Run by hand, as part of `make chaos`: `pytest integration/cloud_stores.py`.

The kills are `python -m integration.exactness --kills 6 --checkpoint azure`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from integration.azure_server import Azure, running_azure
from kstream.conf import Settings
from kstream.spark.checkpoint_store import open_checkpoint, open_checkpoint_to_write
from kstream.storage import FileStore
from kstream.testing.file_store_contract import FileStoreContract


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azure]:
    with running_azure(tmp_path_factory.mktemp("azure")) as azure:
        yield azure


class TestObjectFileStoreOfAzure(FileStoreContract):
    @pytest.fixture(autouse=True)
    def _azure(self, azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
        self.azure = azure
        for key, value in azure.environment().items():
            monkeypatch.setenv(key, value)

    def make_store(self) -> FileStore:
        return open_checkpoint_to_write(self.azure.url(f"contract/{uuid.uuid4().hex}"), Settings({}))

    def reopen(self, store: FileStore) -> FileStore:
        return open_checkpoint(store.url)
