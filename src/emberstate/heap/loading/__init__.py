"""Fills tables from the rows of state files, many rows at a time. Imports `heap.map` and `heap.states`."""
