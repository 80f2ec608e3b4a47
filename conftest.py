"""Settings for every test, wherever pytest is started."""

from __future__ import annotations

import importlib.util
import os
import random

import hypothesis
import pytest
from tests import effort

# Doctests of a compiled module are collected from its .py file, but run on the extension file beside it.
# pytest takes that for a mix-up unless told otherwise; tests/project/test_compiled.py checks that
# it is the right file.
os.environ.setdefault("PY_IGNORE_IMPORTMISMATCH", "1")

# `make integration` installs what its tests import; without it there is nothing to collect there.
collect_ignore = [] if importlib.util.find_spec("confluent_kafka") else ["tests/integration"]

# Nothing that depends on time: a loaded machine is not a defect. The same examples each time, so that a failure is the
# change's; `make long` looks for others, except under CI.
hypothesis.settings.register_profile(
    "emberstate",
    max_examples=effort.examples(100),
    deadline=None,
    derandomize=not effort.ALL or "CI" in os.environ,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("emberstate")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With EMBERSTATE_ORDER the modules come in another order, and so do the tests of each, if it is not IN_ORDER."""
    if order := os.environ.get("EMBERSTATE_ORDER"):
        chance = random.Random(order)
        modules: dict[str, list[pytest.Item]] = {}
        for item in items:
            modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
        shuffled = list(modules.values())
        chance.shuffle(shuffled)
        for module in shuffled:
            if not getattr(getattr(module[0], "module", None), "IN_ORDER", False):
                chance.shuffle(module)
        items[:] = [item for module in shuffled for item in module]
