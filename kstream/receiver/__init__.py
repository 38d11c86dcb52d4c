"""Receivers: a stream's own threads bring records in, and what came since the last batch is the next one.

One idea: a receiver knows only its supervisor. `Receiver` is what users subclass; `ReceiverSupervisor` starts it, starts it again after
a failure and stops it; `ReceivedBlocks` holds what it stores, in blocks, until batches take them and no window needs them. For now all
of it lives in the driver's process. No Spark in here.

Beside it the parts of receivers that run on executors: `receiver_scheduling_policy` says on which, `rate_limiter` and `block_generator`
make blocks of what they store, `received_block_tracker` is the driver's list of blocks, of which a batch has each once.
"""

from kstream.receiver.received_blocks import ReceivedBlocks
from kstream.receiver.receiver import Receiver
from kstream.receiver.receiver_supervisor import ReceiverNews, ReceiverSupervisor
from kstream.receiver.socket_receiver import SocketReceiver, lines_of

__all__ = ["ReceivedBlocks", "Receiver", "ReceiverNews", "ReceiverSupervisor", "SocketReceiver", "lines_of"]
