"""Ratios measured side by side in one run. `python -m integration.benchmarks` runs them all and ends with 1 if a bar is missed."""
