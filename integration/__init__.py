"""Real things: a Kafka broker, Spark, processes that are killed. One file a promise; what is asked for and absent is a failure."""
