"""Inputs that are logs: offset ranges and what is planned with them, and the direct stream of any log.

One idea: records have offsets, a batch is a range of offsets, and everything else follows from ranges. The first half is pure, and the
Kafka connector uses it too; the second half is the stream of a `Log`.

    settings              the settings of inputs that are logs
    offset_range          OffsetRange, TopicAndPartition, LostRange
    positions             the places in a log where reading starts or stops, as users write them
    rate_limits           how many records of each partition a batch may have
    log_ends              where logs ended at the times of missed batches
    progress              offsets and lag of a batch, for listeners; its counts and losses, for the ledger
    batch_speed           BatchSpeed: how many records a batch may have to end in a given time (no clock)
    catch_up              CatchUp: how many records a stream takes while it reads a backlog (asks nobody)
    admission_control     AdmissionControl: all limits of a batch, and the reason of the one that counts (asks nobody)
    read_report           the counts, losses and record errors that tasks report, and their accumulator
    errors_policy         OnRecordError: records that fail, as the user of a stream wants them treated

    log                   Log, which a connector writes
    log_plan              LogPlan and its stored form
    starting_offsets      positions of a Log become offsets
    log_rdd               LogRDD and the task that reads a Log
    log_input_dstream     LogInputDStream
    connector             the hooks of all Logs for the core, and LogTools for commands
"""
