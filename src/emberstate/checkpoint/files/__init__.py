"""State files: Arrow files with the entries of one slot, a base or a delta. Writers and readers, their metadata and
limits.

Knows no manifest: a file says what it holds, not which checkpoint it belongs to.
"""
