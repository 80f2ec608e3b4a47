"""The history of a job: one compact record per batch, in the location, for people. Nothing is ever restored from it."""
