"""The doors to confluent_kafka: the driver's client, parameters, security, redaction, and the diagnosis of a connection."""
