"""Settings for every test, wherever pytest is started."""

from __future__ import annotations

import os

import hypothesis

# Doctests of a compiled module are collected from its .py file, but run on the extension file beside it.
# pytest takes that for a mix-up unless told otherwise; tests/project/test_compiled.py checks that
# it is the right file.
os.environ.setdefault("PY_IGNORE_IMPORTMISMATCH", "1")

# No deadline: a loaded machine is not a defect. Under CI the same examples each time, so that a failure is
# the change's.
hypothesis.settings.register_profile(
    "emberstate", deadline=None, derandomize="CI" in os.environ, print_blob=True
)
hypothesis.settings.load_profile("emberstate")
