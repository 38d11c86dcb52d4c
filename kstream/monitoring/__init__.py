"""What a driver shows of its job: one listener keeps the history, and the status, the progress, the metrics and the page are made from it.

job_history    JobHistory: the listener, with the last batches, the last error, the totals and the receivers
histogram      Histogram: counts delays by their upper bounds
"""
