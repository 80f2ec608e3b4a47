"""A first savepoint out of existing data."""
