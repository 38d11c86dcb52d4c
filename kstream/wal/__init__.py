"""Write-ahead logs: what must not be lost is in a log before anybody is told that it was taken. Bytes in, bytes out.

One idea: a record that `write` has returned for is durable and can be read by its handle, whatever dies after. What was being written
at a death is at the end of a file and is left out by the next reader; no writer ever writes behind it.

    write_ahead_log   the contract, for a log of the user's own too
    file_based        files `log-<start>-<stop>` of framed records in a FileStore, through one of two `writers`
    framing           the stored form (pure)       log_files   the names (pure)
    random_reader     a record by its handle       parallel    many files at once, in order
    batched           what waits is written at once: the driver's log
    handles           where a record lies, as JSON
    fenced            a replaced driver's writes do not count
    selection         which log the settings ask for, on either side

On a local disk and on HDFS a file grows, each record with an fsync. Where files cannot grow – object stores, viewfs:// – each write
is a file of its own. Spark's `WriteAheadLog`, `FileBasedWriteAheadLog`, `BatchedWriteAheadLog`, with their file names and framing.
"""

from kstream.wal.batched import BatchedWriteAheadLog, single_records
from kstream.wal.file_based import FileBasedWriteAheadLog
from kstream.wal.handles import handle_of_json, handle_to_json
from kstream.wal.random_reader import FileBasedWriteAheadLogSegment
from kstream.wal.selection import DRIVER_LOG_FOLDER, create_log_for_driver, create_log_for_receiver, receiver_log_folder
from kstream.wal.write_ahead_log import WriteAheadLog, WriteAheadLogRecordHandle

__all__ = [
    "DRIVER_LOG_FOLDER",
    "BatchedWriteAheadLog",
    "FileBasedWriteAheadLog",
    "FileBasedWriteAheadLogSegment",
    "WriteAheadLog",
    "WriteAheadLogRecordHandle",
    "create_log_for_driver",
    "create_log_for_receiver",
    "handle_of_json",
    "handle_to_json",
    "receiver_log_folder",
    "single_records",
]
