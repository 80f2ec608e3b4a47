"""Benchmarks: not tests. `make bench` runs them all, prints the tables and writes `results/<name>.json`.

Machines are noisy, so a claim is a ratio of two things timed alternately in one run, never a time. Targets are part
of a result: met or missed, both are written down.
"""
