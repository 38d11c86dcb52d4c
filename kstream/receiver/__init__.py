"""Receivers: what comes by itself and cannot be asked for again is brought in by tasks of their own, and is in one batch.

One idea: a receiver knows only its supervisor, and the driver only names of blocks. `Receiver` is what users subclass; its supervisor
starts it, starts it again after a failure and stops it; `receiver_task` is the long-running task of Spark around both. `rate_limiter` and
`block_generator` make blocks of what is stored one by one (`stored_blocks`), `received_block_handler` keeps them on two executors, or in
a write-ahead log and on one (`storage_level`, `receiver_logs`). Each executor has a `block_store`, in a process of its own
(`block_store_process`, `block_store_launcher`) that lives as long as the executor (`executor_process`); `block_reading` reads them back,
in any worker. What driver and executors say to each other is in `messages`. On the driver `receiver_scheduling_policy` says where receivers
run, and `received_block_tracker` is the list of blocks; the ReceiverTracker is in `scheduler/`. No Spark in here.
"""

from kstream.receiver.receiver import Receiver
from kstream.receiver.receiver_supervisor import ReceiverNews, ReceiverSupervisor
from kstream.receiver.socket_receiver import SocketReceiver, lines_of

__all__ = ["Receiver", "ReceiverNews", "ReceiverSupervisor", "SocketReceiver", "lines_of"]
