"""The connector's part of the commands: ranges of plans, parameters, ends of logs, and new offsets for a stream that does not run."""
