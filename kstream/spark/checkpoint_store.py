"""From a checkpoint's path or URL to its store, those that need a JVM among them. Imports pyspark only where Hadoop is needed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kstream.conf import Settings
from kstream.storage import FileStore, LocalFileStore, open_store, prepare_to_write
from kstream.storage.file_store import SINGLE_WRITER
from kstream.storage.open import is_known, scheme_of

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)
_LOCAL = ("", "file")


def make_checkpoint_directory(url: str) -> None:
    """Makes a local directory, so that a wrong path is an error where it is given. Sends nothing to any other store.

    Raises:
        StorageError: the directory cannot be made.
        ConfigurationError: the URL has a password in it.
    """
    if scheme_of(url) in _LOCAL:
        store = open_store(url)
        assert isinstance(store, LocalFileStore)
        store.make_root()


def set_checkpoint_dir(sc: SparkContext, url: str) -> None:
    """Sets the checkpoint directory of the SparkContext, for `rdd.checkpoint()` in the user's functions; Spark's StreamingContext does so.

    Sets local directories and URLs that only Hadoop knows. Object stores and other URLs of fsspec are left out: pip's pyspark has no file
    system for them. A failure is a warning: no batch depends on it.
    """
    scheme = scheme_of(url)
    if scheme not in _LOCAL and is_known(scheme):
        return
    directory = f"file://{open_store(url).url}" if scheme in _LOCAL else url
    try:
        sc.setCheckpointDir(directory)
    except Exception as e:
        logger.warning("the checkpoint directory of the SparkContext could not be set to %s, rdd.checkpoint() needs it: %s", directory, e)


def open_checkpoint(url: str) -> FileStore:
    """The store under a URL, to read what lies there. For a scheme that is left to Hadoop a JVM is started where there is none."""
    if not is_known(scheme_of(url)):
        from kstream.spark.hadoop_file_store import open_hadoop

        return open_hadoop(url)
    return open_store(url, read_only=True)


def open_checkpoint_to_write(url: str, settings: Settings) -> FileStore:
    """The store under a URL, for a driver: tried, so that its create can be trusted. UnsupportedStoreError where it cannot."""
    single_writer = settings.get(SINGLE_WRITER)
    if not is_known(scheme_of(url)):
        return prepare_to_write(open_checkpoint(url), single_writer)
    return prepare_to_write(open_store(url, single_writer=single_writer), single_writer)
