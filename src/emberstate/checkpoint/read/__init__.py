"""Reads checkpoints and savepoints, beside a running job too, as entries, as Arrow, and as changes. Writes nothing,
apart from the pin that keeps what is read. Imports `files`, `manifest` and `restore`, never `commit`.
"""
