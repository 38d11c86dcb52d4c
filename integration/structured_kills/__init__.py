"""A query of `format("kstream")` whose drivers and executors are killed: each record is in one batch, and a batch never changes.

job             the driver: a plain user's query with foreachBatch
campaign        kills at random moments of the query, and the verdict on all that its drivers have left
sink_job        the driver of a query from Kafka to Kafka
sink_campaign   the same kills, and what a reader finds in the topic that is written
`python -m integration.structured_kills --kills driver=20,executor=6 [--sink kstream]`
"""
