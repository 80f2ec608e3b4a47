"""The small files that decide something: manifests and their catalogue, claims (incarnations), intents, pins, and the
layout of a location. Imports `checkpoint.files` for the description of a state.
"""
