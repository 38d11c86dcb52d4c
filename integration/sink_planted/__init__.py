"""Bugs that are planted in the Kafka sink, one real job each: the verdict and the audit of the run must find each of them.

The simulation of the sink finds such bugs by the thousand lives. Here each of eight meets one job on a real broker, with Spark.

bugs        the bugs, as patches of the sink in the driver and in its workers
scenarios   what happens to the job, and what is wrong afterwards
`python -m integration.sink_planted [--only WORDS]`
"""
