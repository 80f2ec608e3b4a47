"""State as tables of Spark, and DataFrames as savepoints."""
