"""The Kafka source and sink of Structured Streaming, as a Python data source of Spark 4: `format("kstream")` to read and to write.

`pyspark_kstream` has the class that Spark finds, and nothing else.

    option_kinds       the kinds of values that options have, and their parsers (pure)
    options            SourceOptions: the options of Spark's Kafka source, in one table (pure)
    requirements       what the Python of Spark's workers must have
    columns            the columns of a query: all, or those that a schema names
    limits             shares of a limit by lag, and the division of a micro-batch into tasks (pure)
    record_lengths     RecordLengths: how long the next records are
    trigger_limits     TriggerLimits: how many records a micro-batch may have
    places             places that an option names
    losses             QueryLosses: what a query has lost, as its planner knows it
    bounds             where a query begins and where a batch ends; how long it waits for brokers
    micro_batches      MicroBatches: the plans of a stream, in the planner process of its query
    partition_reads    what a task reads
    readers            the readers as Spark calls them
    sink_options       SinkOptions: the options of the sink (pure)
    json_rows          JsonRows: rows of a frame as JSON
    value_encoders     ValueEncoding: how the values of a frame become bytes
    spools             what a task has of a batch, until it is committed
    writers            the writers as Spark calls them
"""
