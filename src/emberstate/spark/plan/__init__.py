"""A pipeline as the user declared it: immutable descriptions, checked when they are made. Imports no driver."""
