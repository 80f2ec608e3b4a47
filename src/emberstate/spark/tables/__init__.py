"""The state of a checkpoint as a Spark table, and savepoints written from DataFrames.

Imports `checkpoint.read` and `checkpoint.offline`, and of `driver` the column of key groups; no pipeline runs here.
"""
