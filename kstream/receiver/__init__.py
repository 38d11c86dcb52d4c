"""Receivers: a stream's own threads bring records in, and what came since the last batch is the next one.

One idea: a receiver knows only its supervisor. `Receiver` is what users subclass; `ReceiverSupervisor` starts it, starts it again after
a failure and stops it; `ReceivedBlocks` holds what it stores, in blocks, until batches take them and no window needs them. For now all
of it lives in the driver's process. No Spark in here.

Beside it the parts of receivers that run on executors, which no stream uses yet. On the driver `receiver_scheduling_policy` says where
(the ReceiverTracker is in `scheduler/`), and `received_block_tracker` is its list of blocks, of which a batch has each once. On an
executor `receiver_task` is the long-running task, `rate_limiter` and `block_generator` make blocks of what the receiver stores
(`stored_blocks`), `received_block_handler` keeps them on two executors; each has a `block_store`, in a process of its own
(`block_store_process`, `block_store_launcher`) that lives as long as the executor (`executor_process`). `block_reading` reads them back,
in any worker. What they say to each other is in `messages`.
"""

from kstream.receiver.received_blocks import ReceivedBlocks
from kstream.receiver.receiver import Receiver
from kstream.receiver.receiver_supervisor import ReceiverNews, ReceiverSupervisor
from kstream.receiver.socket_receiver import SocketReceiver, lines_of

__all__ = ["ReceivedBlocks", "Receiver", "ReceiverNews", "ReceiverSupervisor", "SocketReceiver", "lines_of"]
