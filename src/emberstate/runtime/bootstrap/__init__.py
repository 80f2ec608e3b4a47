"""Makes a first savepoint out of existing data: from Arrow rows to entries of states. Imports `checkpoint.offline`."""
