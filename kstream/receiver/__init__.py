"""Receivers: sources that push records, each in a task of its own; and the blocks of these records, each in one batch.

One idea: a receiver knows only its supervisor, and the driver only ids of blocks. No module of this room uses Spark.

    settings                     the settings of receivers and of their blocks
    receiver                     Receiver, which users subclass; ReceiverSupervisor, which starts, restarts and stops one
    socket_receiver              SocketReceiver
    receiver_task                the long-running Spark task that runs a supervisor with its receiver
    block_generator              records become blocks, at a limited rate
    block_writer                 pickled records become stored blocks, which the driver acknowledges
    received_block_handler       blocks are stored on two executors, or in a write-ahead log and on one
    block_store                  the blocks of one executor, and the clients of such a store
    block_store_process          the store's process, which lives as long as the executor
    executor_process             the executor of a worker, and the wait for its end
    block_reading                a worker reads a block back
    messages                     between receivers and the driver
    receiver_tracker             on the driver: all receivers, and the stores
    failed_starts                when a receiver that never starts fails the job
    receiver_scheduling_policy   on which executors receivers run
    received_block_tracker       on the driver: all blocks, and their log
"""

from kstream.receiver.receiver import Receiver, ReceiverNews, ReceiverSupervisor
from kstream.receiver.socket_receiver import SocketReceiver, lines_of

__all__ = ["Receiver", "ReceiverNews", "ReceiverSupervisor", "SocketReceiver", "lines_of"]
