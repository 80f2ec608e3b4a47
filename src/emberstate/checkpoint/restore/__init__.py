"""From a manifest back to a backend: checks that the stored states fit the program, applies its choices, and loads the
rows. Imports `files` and `manifest`.
"""
