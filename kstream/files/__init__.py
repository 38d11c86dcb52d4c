"""Files that arrive in a directory: listing, choosing, cutting, reading. No Spark.

One idea: what a batch takes is decided once, on the driver, from one listing, and is written down as (path, modification time, size);
reading is a function of that alone. `Selection` is the decision (pure), `directory` turns a path with wild cards into a listing,
`file_systems` are local disk, fsspec and object stores, `formats` make records of bytes, `WatchedDirectory` puts them together.
"""

from kstream.files.file_status import FileStatus
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
