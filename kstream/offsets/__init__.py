"""Logs, and what is planned with their offsets: ranges, positions, limits, reports of reads, errors policies. Pure.

One idea: records have offsets, a batch is a range of offsets, and everything else follows from ranges. Nothing here knows a stream or
Spark, so every room from the batches on up may import it. `kstream.direct` and the Kafka connector are built of it.

    settings              the settings of inputs that are logs
    offset_range          Partition, OffsetRange, TopicAndPartition, LostRange, SkippedRecord; PlannedRange and UnreadableRange of commands
    topic_offsets         offsets in the form of Structured Streaming
    offset_log            the offsets of a batch of Structured Streaming, from the text of a file
    positions             the places in a log where reading starts or stops, as users write them
    log                   Log, which a connector writes
    starting_offsets      positions of a Log become offsets
    log_ends              where logs ended at the times of missed batches
    batch_speed           BatchSpeed: how many records a batch may have to end in a given time (no clock)
    catch_up              CatchUp: how many records a stream takes while it reads a backlog (asks nobody)
    admission_control     AdmissionControl: all limits of a batch, and the reason of the one that counts (asks nobody)
    read_report           the counts, losses and record errors that a task reports
    errors_policy         RecordErrorPolicy: records that fail; OnRecordError: what the user of a stream has chosen for them
    connector             the earlier place of LogTools
"""
