"""`emberstate demo`: a job on local Spark, and what is done to it. Imports no command."""
