"""The life of a batch: the JobGenerator plans and generates it, the JobScheduler runs it and posts its events to listeners.

`batch_steps.TABLE` has the steps of a batch. The generator's thread takes those up to its submission, the scheduler's the later ones. A
file imports only files above it:

    settings             the settings of batches, and those of rates and executors
    changed_windows      which stored totals a window with an inverse may continue from (pure)
    state_checkpointer   StateCheckpointer, and the one that writes, restores and removes the states of streams
    retry_policy         RetryPolicy: when a failed batch is tried again, and whether later batches wait for it
    batch_steps          where a batch may stand, and which steps it may take from there (pure)
    batch_lifecycle      BatchLifecycle: where each planned batch stands
    completions          Completions: stores how batches end
    job_scheduler        JobScheduler: runs the jobs; JobEnvironment: what Spark does around a job
    planning_outage      PlanningOutage: how long the driver waits for brokers or a store that are away
    empty_batches        EmptyBatches: which batches end without the user's functions
    missed_batches       which missed batches are planned late; MissedBatches: those that are not planned yet
    input_lags       InputLags: the lag of each input that reads logs
    rate_estimator       RateEstimator, PIDRateEstimator: the rate that the speed of the last batches allows
    rate_controller      RateController: tells an input its rate after each batch
    executor_allocation_policy  how many executors a job gets for the speed of its batches (pure)
    executor_allocation_manager  ExecutorAllocationManager: asks Spark for them, once a scaling interval
    batch_submitter      BatchSubmitter: generates the jobs of planned batches and submits them in their turn
    batch_planner        BatchPlanner: collects the plans of the inputs, and makes the plan of a batch durable
    due_batches          DueBatches: which batch times make a batch, and when a missed one is planned
    restart              Restart: continues from the log of earlier drivers
    job_generator        JobGenerator: ticks, graceful stop, clean-up
"""
