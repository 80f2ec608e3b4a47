"""A slot: the process that keeps state, the socket to it, and the Spark task that streams a partition's rows to it.

All code that runs in a worker or a slot is here. Imports neither `driver` nor `plan`.
"""
