"""A job on a cluster whose executors, workers, driver and broker are killed: states, windows, a join and DataFrames equal a recount.

job         what `kstream run` runs: two topics of six partitions, and an output for each operator that could be wrong
campaign    kills of every kind at random moments, some of them with a downtime; what each restart cost
verdict     recounts every batch from its ranges
`python -m integration.clustered --kills executor=16,worker=6,driver=12,broker=6 --rate 500 --behind 60`
"""
