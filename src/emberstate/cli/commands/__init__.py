"""One module per command, with its options and what it prints; `checkpoints` and `state` are the groups of commands.

Imports the rest of `cli` except `root` and `main`.
"""
