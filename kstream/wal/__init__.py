"""Write-ahead logs: records that are durable before they are acknowledged. Bytes in, bytes out.

One idea: once `write` has returned, the record is durable and readable by its handle, even if every process dies afterwards. A record
that a crash has cut off is at the end of a file, and readers leave it out. No writer ever appends to such a file.

    settings                     the settings of the driver's log and of receivers' logs
    write_ahead_log              the contract, also for a log class of the user; handles of records, also as JSON
    file_based_write_ahead_log   files of framed records in a FileStore, and the two ways to write them
    file_format                  names of files and framing of records (pure)
    batched_write_ahead_log      two wrappers of the driver's log: batching and fencing
    write_ahead_log_utils        makes the log that the settings ask for

On a local disk and on HDFS a file grows, and each write ends with an fsync. Where files cannot grow – object stores, viewfs:// – each
write makes a file. The class names are Spark's: `WriteAheadLog`, `FileBasedWriteAheadLog`, `BatchedWriteAheadLog`. So are the names of
files and the framing of records.
"""

from kstream.wal.batched_write_ahead_log import BatchedWriteAheadLog, single_records
from kstream.wal.file_based_write_ahead_log import FileBasedWriteAheadLog
from kstream.wal.write_ahead_log import (
    FileBasedWriteAheadLogSegment,
    WriteAheadLog,
    WriteAheadLogRecordHandle,
    handle_of_json,
    handle_to_json,
)
from kstream.wal.write_ahead_log_utils import DRIVER_LOG_FOLDER, create_log_for_driver, create_log_for_receiver, receiver_log_folder

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
