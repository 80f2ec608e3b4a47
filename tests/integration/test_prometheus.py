"""A real Prometheus scrapes a running job: the alert rules load, and every query of the dashboard returns data."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import emberstate as es
from tests.patience import PATIENCE
from tests.project.markdown import ROOT
from tests.spark.pipeline_functions import TOTALS, Totals, events
from tests.spark.spark_session import wait_for
from tests.spark.streams import Kept, Stream, wait_in

pytestmark = pytest.mark.spark

RULES = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "emberstate.json"

for program in ("prometheus", "promtool"):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed: make integration installs it", allow_module_level=True)


def test_promtool_accepts_and_tests_the_rules() -> None:
    """Catches: a rule that Prometheus cannot load; an alert that is silent on a sick job, or fires on a healthy one."""
    for words in (["check", "rules", "alerts.yml"], ["check", "config", "prometheus.yml"],
                  ["test", "rules", "alerts.test.yml"]):  # fmt: skip
        done = subprocess.run(["promtool", *words], cwd=RULES, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[es.metrics.PrometheusListener, str]]:
    """A listener, and the address of a Prometheus that scrapes it every second."""
    listener = es.metrics.prometheus(0)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    shutil.copy(RULES / "alerts.yml", tmp_path)
    config = (RULES / "prometheus.yml").read_text(encoding="utf-8").replace("15s", "1s")
    config = config.replace("localhost:9464", f"127.0.0.1:{listener.port}")
    (tmp_path / "prometheus.yml").write_text(config, encoding="utf-8")
    process = subprocess.Popen(
        ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
         f"--web.listen-address={address}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield listener, f"http://{address}"
    finally:
        process.kill()
        process.wait()
        listener.close()


def asked(address: str, path: str, **parameters: str) -> Any:
    """The answer of Prometheus's API; None while it is not up."""
    try:
        with urllib.request.urlopen(f"{address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}") as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def _evaluated(answer: Any) -> list[Any] | None:
    """The rules, once all have been evaluated."""
    rules: list[Any] = [rule for group in (answer or {}).get("groups", ()) for rule in group["rules"]]
    return rules if rules and all(rule["health"] != "unknown" for rule in rules) else None


def test_a_running_job_is_seen(stream: Stream, server: tuple[es.metrics.PrometheusListener, str]) -> None:
    """Catches: metrics that Prometheus cannot read; labels that it renames; a panel of the dashboard without data."""
    listener, address = server
    wait_for(lambda: asked(address, "query", query="up") is not None, "Prometheus")
    stage = stream.pipeline().key_by("key").event_time("ts").process("totals", Totals(), TOTALS)
    done = list[es.Progress]()
    query = stream.start(stage.sink(Kept()).listener(listener).listener(done.append))
    given = events(60)
    for number in range(3):
        stream.add(given[number * 20 : number * 20 + 20])
        wait_in(query, lambda: len(done) > number, "a batch")  # noqa: B023
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    for expression in [target["expr"] for panel in panels for target in panel["targets"]]:
        text = expression.replace("$job", "job").replace("$__rate_interval", "5m").replace("$__range", "5m")
        wait_for(lambda: (asked(address, "query", query=text) or {}).get("result"), f"data for {text}")  # noqa: B023
    all_rows = 'emberstate_rows_in_total{job="job"} == 60'
    wait_for(lambda: (asked(address, "query", query=all_rows) or {}).get("result"), "the last scrape")
    rules = wait_for(lambda: _evaluated(asked(address, "rules")), "the rules")
    assert len(rules) == 8 and {rule["health"] for rule in rules} == {"ok"}
    query.stop()
