"""Planning: from subscription, offsets and limits to the ranges of a batch, and from ranges to tasks. Neither Spark nor settings by key.

What asks the brokers does it by a DriverClient (`client/ports.py`); the rest is pure.

    subscription          the topics and partitions of a stream, and ConsumerStrategies
    starting_offsets      OffsetResolver: positions become offsets
    partition_offsets     PartitionOffsets: the next offset of every partition, new and changed topics
    missing_partitions    partitions that the brokers do not show, until it is known whether they were deleted
    stopping_offsets      where a bounded run ends
    downtime              missed batches get the records of their time
    planner               KafkaPlanner; the rate limits of a user for each partition
    plan                  KafkaPlan and its stored form; kept offsets
    packing               the splits that each task reads
    dead_letter           the headers of dead letters
"""
