"""What a pipeline consists of, as the user declared it: immutable descriptions, checked when they are made."""
