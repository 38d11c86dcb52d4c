"""Write-ahead logs: records that are durable before they are acknowledged. Bytes in, bytes out.

One idea: once `write` has returned, the record is durable and readable by its handle, whatever dies afterwards. A record that was being
written at a crash is at the end of a file, and the next reader leaves it out. No writer ever appends to such a file.

    write_ahead_log   the contract, also for a log of the user's
    file_based        files of framed records in a FileStore, through one of the two `writers`
    file_format       names of files and framing of records (pure)
    handles           where a record is, how to read it there, and the handle as JSON
    driver_log        around the driver's log: batches, and fencing
    selection         which log the settings ask for

On a local disk and on HDFS a file grows, each record with an fsync. Where files cannot grow – object stores, viewfs:// – each write
makes a file. Names are Spark's: `WriteAheadLog`, `FileBasedWriteAheadLog`, `BatchedWriteAheadLog`; so are file names and framing.
"""

from kstream.wal.driver_log import BatchedWriteAheadLog, single_records
from kstream.wal.file_based import FileBasedWriteAheadLog
from kstream.wal.handles import FileBasedWriteAheadLogSegment, handle_of_json, handle_to_json
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
