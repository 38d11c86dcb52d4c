"""Continuous processing: long tasks that read a log without batches, and end an epoch many times a second.

One idea: a task owns partitions of the input, and each epoch of the task is one transaction: the outputs, and a receipt with the position
of each partition that has moved. The receipts are the truth. So a partition changes hands by three steps in this order: the
transactional id of the task that had it is taken, its receipt is read, and only then another task gets it. An *epoch* here is one of a
task, as in Spark's continuous processing; the driver's epoch is called so.

    ports               what a log, an output and a cluster do for this room
    assignment          which task reads which partitions; stored before a task starts
    task_report         what a task tells of its epochs
    messages            the messages between tasks and the driver
    epoch_task          the loop of a task in a worker
    restarts            when a task runs again, from where, and when its failures end the stream
    position_log        how far the tasks had come, for people
    epoch_coordinator   the driver's half: hand-overs, and the answers to the tasks
    settings            the settings of the room
    stream              ContinuousStream: the operators and outputs, as users call them
    operators           the operators, as a task runs them on each chunk
    positions_only      the output of `foreach`, which has no receipts
    task_body           what the Spark task of a run does in its worker
"""
