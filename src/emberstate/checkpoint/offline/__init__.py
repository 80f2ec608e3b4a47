"""Makes savepoints without a job: from rows, or by rewriting one savepoint into another."""
