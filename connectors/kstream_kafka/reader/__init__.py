"""Reading of offset ranges in the workers: KafkaRDD, tasks, consumers, decoding, and the read report."""
