"""The state of a checkpoint as a Spark table, and savepoints written from DataFrames."""
