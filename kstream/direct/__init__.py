"""The direct stream of any Log, and what all direct streams share on the driver.

A direct stream has no receiver: the driver plans ranges of offsets, and the tasks read them. `kstream.offsets` has what is planned.

    direct_input_dstream     DirectInputDStream: the base of the direct streams
    planner                  Planner, which plans the batches of one
    log_planner              LogPlanner: the planner of any Log
    log_plan                 LogPlan and its stored form (pure)
    log_input_dstream        LogInputDStream
    log_rdd                  LogRDD and the task that reads a Log
    connector                the hooks of all Logs for the core, and LogTools for commands
    read_report_accumulator  ReadReportAccumulator: the reports of the tasks of a stream, merged
"""
