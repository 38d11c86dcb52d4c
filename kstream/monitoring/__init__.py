"""What a driver shows of its job: one listener keeps the history, and the status, the progress, the metrics and the page are made from it.

What is kept has bounds: whole facts of few batches, a small row of more, an hour in buckets, and numbers. The files:

    job_snapshot   JobSnapshot: a job at one moment, from its history and its engine
    job_history    JobHistory: the listener, with the last batches, the last error, the totals and the receivers
    batch_history  BatchHistory: the batches that a page shows, from their submission on
    batch_row      BatchRow: a batch in a few hundred bytes
    skewed_ranges  SkewedRange: a partition that gives a batch far more records than the others of its topic
    timeline       Timeline: the last hour in at most 600 buckets
    histogram      Histogram: counts delays by their upper bounds
"""
