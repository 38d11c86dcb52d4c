"""Files that arrive in a directory: listing, selecting, cutting, reading. No Spark.

One idea: the driver decides once, from one listing, which files a batch takes, and stores (path, modification time, size) of each. Reading
depends only on that. `Selection` decides (pure), `directory` lists directories and cuts files into splits, `file_systems` are the local
disk, fsspec and object stores, `formats` read records from bytes, and `WatchedDirectory` combines them.
"""

from kstream.files.directory import FileStatus
from kstream.files.formats import FileFormat, FixedRecords, TextLines, WholeFile
from kstream.files.selection import Change, Selection
from kstream.files.watched_directory import FileSource, WatchedDirectory

__all__ = [
    "Change",
    "FileFormat",
    "FileSource",
    "FileStatus",
    "FixedRecords",
    "Selection",
    "TextLines",
    "WatchedDirectory",
    "WholeFile",
]
