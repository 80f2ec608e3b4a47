"""A slot: the process that keeps state, the socket to it, and the task that streams a partition's rows through it.

Everything that runs in a worker or a slot is here; it imports no driver.
"""
