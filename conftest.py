"""Settings for every test, wherever pytest is started."""

from __future__ import annotations

import os

import hypothesis
from tests import effort

# Doctests of a compiled module are collected from its .py file, but run on the extension file beside it.
# pytest takes that for a mix-up unless told otherwise; tests/project/test_compiled.py checks that
# it is the right file.
os.environ.setdefault("PY_IGNORE_IMPORTMISMATCH", "1")

# Nothing that depends on time: a loaded machine is not a defect. The same examples each time, so that a failure is the
# change's; `make long` looks for others.
hypothesis.settings.register_profile(
    "emberstate",
    max_examples=effort.examples(100),
    deadline=None,
    derandomize=not effort.ALL,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("emberstate")
