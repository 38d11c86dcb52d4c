"""From a checkpoint's path or URL to its store, those that need a JVM among them. Imports pyspark only where Hadoop is needed."""

from __future__ import annotations

from kstream.conf import Settings
from kstream.storage import FileStore, open_store, prepare_to_write
from kstream.storage.open import SINGLE_WRITER, is_known, scheme_of


def open_checkpoint(url: str) -> FileStore:
    """The store under a URL, to read what lies there. For a scheme that is left to Hadoop a JVM is started where there is none."""
    if not is_known(scheme_of(url)):
        from kstream.spark.hdfs_appending import open_hadoop

        return open_hadoop(url)
    return open_store(url, read_only=True)


def open_checkpoint_to_write(url: str, settings: Settings) -> FileStore:
    """The store under a URL, for a driver: tried, so that its create can be trusted. UnsupportedStoreError where it cannot."""
    single_writer = settings.get(SINGLE_WRITER)
    if not is_known(scheme_of(url)):
        return prepare_to_write(open_checkpoint(url), single_writer)
    return prepare_to_write(open_store(url, single_writer=single_writer), single_writer)
