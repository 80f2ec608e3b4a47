"""Reads checkpoints and savepoints, beside a running job too, as entries, as Arrow, and as changes. Writes nothing."""
