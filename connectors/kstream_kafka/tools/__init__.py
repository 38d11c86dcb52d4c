"""What commands ask of Kafka: the ends of logs, other offsets for a stream that does not run."""
