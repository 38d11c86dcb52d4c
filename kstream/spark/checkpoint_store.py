"""Opens the store of a checkpoint by its path or URL, on Hadoop's file systems, too. Imports pyspark only if Hadoop is needed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kstream.conf import Settings
from kstream.errors import one_line
from kstream.storage import FileStore, LocalFileStore, open_store, prepare_to_write
from kstream.storage.fsspec_store import FsspecFileStore
from kstream.storage.open import is_known, scheme_of
from kstream.storage.settings import SINGLE_WRITER

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)
_LOCAL = ("", "file")


def make_checkpoint_directory(url: str) -> None:
    """Create a local directory, so that a wrong path is an error at once. Sends no request to any other store.

    Raises:
        StorageError: the directory cannot be made.
        ConfigurationError: the URL has a password in it.
    """
    if scheme_of(url) in _LOCAL:
        store = open_store(url)
        assert isinstance(store, LocalFileStore)
        store.make_root()


def set_checkpoint_dir(sc: SparkContext, url: str) -> None:
    """Set the checkpoint directory of the SparkContext, as Spark's StreamingContext does, for `rdd.checkpoint()` in functions of the user.

    This changes something only for local directories and for URLs that only Hadoop knows. pip's pyspark has no file system for object
    stores and for the other URLs of fsspec. A failure is logged as a warning and not raised, because no batch depends on the directory.
    """
    scheme = scheme_of(url)
    if scheme not in _LOCAL and is_known(scheme):
        return
    directory = f"file://{open_store(url).url}" if scheme in _LOCAL else url
    try:
        sc.setCheckpointDir(directory)
    except Exception as e:
        logger.warning(
            "the SparkContext: its checkpoint directory could not be set to %s, so rdd.checkpoint() will fail: %s", directory, one_line(e)
        )


def open_checkpoint(url: str) -> FileStore:
    """Open the store under a path or URL to read it. A scheme that only Hadoop knows needs a JVM: the first such call may take seconds.

    Raises:
        ConfigurationError: the URL has a password in it, or is a `hdfs:` URL without a namenode and there is no default one.
        UnsupportedStoreError: Hadoop does not know the scheme either.
        MissingDependencyError: the URL needs Hadoop, and pyspark is not installed.
        JavaNotFoundError: the URL needs Hadoop, and there is no Java.
        StorageError: no JVM could be started, or it does not answer.
    """
    if not is_known(scheme_of(url)):
        from kstream.spark.hadoop_file_store import open_hadoop

        return open_hadoop(url)
    return open_store(url, read_only=True)


def open_checkpoint_to_write(url: str, settings: Settings, opened: FileStore | None = None) -> FileStore:
    """Open the store of a checkpoint for a driver, and test that its create-if-absent can be trusted. May block on the network.

    If the answer depends on a server, a probe file is created twice and deleted. A directory of Hadoop is made first.

    Args:
        url: the path or URL of the checkpoint.
        settings: the driver's settings; `spark.streaming.kstream.checkpoint.singleWriter` permits a store without
            create-if-absent, with a warning.
        opened: the same store as `open_checkpoint` has opened it; it is used again. None opens the store.

    Raises:
        UnsupportedStoreError: two drivers could overwrite each other's files there, and the setting does not permit it.
        StorageError: a request failed.
        KStreamError: the errors of `open_checkpoint`.
    """
    single_writer = settings[SINGLE_WRITER]
    if not is_known(scheme_of(url)):
        return prepare_to_write(open_checkpoint(url) if opened is None else opened, single_writer)
    if opened is None or isinstance(opened, FsspecFileStore):  # without create-if-absent it depends on the setting who may write there
        opened = open_store(url, single_writer=single_writer)
    return prepare_to_write(opened, single_writer)


class CheckpointDirectory:
    """The checkpoint directory of a context. A start opens its store once: to look for plans before `setup` is called, and for the driver.

    Args:
        url: a path, or the URL of a store.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened: FileStore | None = None

    def open(self) -> FileStore:
        """Make the directory, and open its store to read it. Raises as `make_checkpoint_directory` and `open_checkpoint`."""
        make_checkpoint_directory(self.url)
        self._opened = open_checkpoint(self.url)
        return self._opened

    def open_to_write(self, sc: SparkContext, settings: Settings) -> FileStore:
        """Open the store for the driver, and make the directory that of the SparkContext. Raises as `open_checkpoint_to_write`."""
        store = open_checkpoint_to_write(self.url, settings, self._opened)
        set_checkpoint_dir(sc, self.url)
        return store
