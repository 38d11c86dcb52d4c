"""Ratios measured side by side in one run. `python -m integration.benchmarks` runs them all and ends with 1 if a bar is missed.

`path_of_a_batch` is not among them: it counts, and compares with what it counted on earlier code.
"""
