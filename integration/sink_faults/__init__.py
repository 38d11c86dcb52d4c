"""The exactly-once Kafka sink under faults of the network and of its writers: each record is there once, and no transaction stays open.

batches     drivers and batches without a StreamingContext; attempts at partitions, in this process or in one of their own
verdict     what a reader of committed records finds
faults      a request is held or dropped, or its answer; then the batch is tried again
suspended   an attempt is suspended, and another driver or another attempt writes its partition
left_open   how long the transactions of a killed process hold up readers
`python -m integration.sink_faults [--only WORDS]`
"""
