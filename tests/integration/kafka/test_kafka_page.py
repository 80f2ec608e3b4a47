"""The page about Kafka runs, on a real broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tools.jars import connector_jars

from tests.integration.kafka.broker import Broker
from tests.project.markdown import ROOT
from tests.project.page import run_page

pytestmark = pytest.mark.spark


def test_the_page_runs(spark: Any, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: an example that the code, Spark's connector or Kafka has moved away from."""
    pytest.importorskip("fastavro", reason="fastavro is not installed: run `make integration`")
    monkeypatch.chdir(tmp_path)
    jars = f"jars={[str(jar) for jar in connector_jars()]}"  # those that the running session has
    run_page(ROOT / "docs/how-to/kafka.md", here={"localhost:9092": broker.servers, 'packages=["kafka"]': jars})
