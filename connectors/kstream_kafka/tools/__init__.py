"""The connector's half of the commands: ranges of plans, parameters, ends of logs, other offsets for a stream that does not run."""
