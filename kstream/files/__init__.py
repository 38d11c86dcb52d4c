"""Files that arrive in a directory: listing, selecting, cutting, reading. No Spark.

One idea: the driver decides once, from one listing, which files a batch takes, and stores (path, modification time, size) of each. Reading
depends only on that.

    settings            the settings of file streams
    selection           decides which files of a listing a batch takes (pure)
    file_systems        the local disk, fsspec and object stores
    formats             cutting files into splits, and reading records from them
    watched_directory   lists a directory, with wild cards or without, and makes RDDs of its files
"""

from kstream.files.file_systems import FileStatus
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
