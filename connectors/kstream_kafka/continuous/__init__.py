"""Continuous processing with Kafka: what `kstream.continuous` asks of a log and of an output.

unbounded_reader    the records of some partitions as they come, in a worker
epoch_receipt       up to where the input of a task is written, as bytes (pure)
epoch_writer        the epochs of a task, each in one transaction with its receipts
source              what a continuous stream reads and where it writes, in the driver
hand_over           the ids of tasks, taken, and the receipts of partitions, read, in the driver
"""
