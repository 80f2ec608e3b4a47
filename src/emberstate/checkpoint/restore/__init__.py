"""From a manifest back to a backend: which files and which part of them, whether the states still fit, what to drop or
keep, and loading the rows. Imports `files` and `manifest`.
"""
