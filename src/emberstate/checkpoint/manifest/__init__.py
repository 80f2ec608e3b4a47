"""The small files of a location: manifests and their catalogue, claims (incarnations), intents, pins, and the layout.
Imports `checkpoint.files` for the description of a state.
"""
