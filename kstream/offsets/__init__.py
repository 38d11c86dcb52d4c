"""Inputs that are logs: offset ranges, rate limits and read reports, and the direct stream of any log."""
