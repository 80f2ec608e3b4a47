"""Makes savepoints without a job: from rows, or by rewriting one savepoint into another.

Imports `read`, and of `commit` what makes a savepoint of its files.
"""
