"""Metrics out of records of the history: for Prometheus over HTTP, and for OpenTelemetry."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

import emberstate as es
from emberstate.checkpoint.history.model import FailureRecord, HistoryRecord, SlotRecord
from emberstate.errors import InstallationError, StateDeclarationError
from emberstate.metrics import PrometheusListener
from emberstate.metrics.catalogue import MAX_SLOTS, METRICS
from tests.project.markdown import ROOT
from tests.raising import raising

DEPLOY = ROOT / "deploy"


def slot(number: int, **fields: Any) -> SlotRecord:
    """A slot that worked for a second and a bit."""
    micros = {"total": 1_000_000 + number, "start": 300_000}
    return SlotRecord(stage="rate", slot=number, executor="h:1", micros=micros, memory=40, memory_limit=100, **fields)


def opening(slots: int) -> HistoryRecord:
    """A start."""
    return HistoryRecord(kind="opening", job="cards", time=5_000_000, parallelism={"rate": slots})


def batch(*slots: SlotRecord) -> HistoryRecord:
    """A batch of 2 seconds with one repeated task."""
    return HistoryRecord(
        kind="batch", job="cards", time=10_000_000, batch=7, checkpoint=8, rows_in=20, rows_out={"main": 5},
        late_rows=2, late_rows_dropped=1, null_keys=3, timers_fired=4, watermark=1_000_000, lag=9_000_000,
        state_entries=11, state_bytes=1000, delta_bytes=100, slots=slots,
        micros={"total": 2_000_000, "spark": 500_000, "background": 1},
        failures=(FailureRecord(stage="rate", slot=1),),
    )  # fmt: skip


@pytest.fixture
def served() -> Iterator[PrometheusListener]:
    """A listener that serves."""
    listener = es.metrics.prometheus(0)
    yield listener
    listener.close()


def scraped(listener: PrometheusListener) -> dict[tuple[str, ...], float]:
    """What Prometheus gets: values by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in families for sample in family.samples
        }  # fmt: skip


def test_prometheus_gets_what_the_records_say(served: PrometheusListener) -> None:
    """Catches: a counter that is set, or counts a batch's numbers twice; a slot without its series; a restore that is
    not seen; a metric that no record ever changes."""
    served.record(opening(2))
    assert scraped(served)["emberstate_failures_total", "cards"] == 0
    for _ in range(2):
        served.record(batch(slot(0, start="restored"), slot(1, rows=6)))
    for kind in ("redelivery", "failure", "savepoint"):
        served.record(HistoryRecord(kind=kind, job="cards", time=0))
    found = scraped(served)
    assert found["emberstate_batches_total", "cards"] == 2 and found["emberstate_rows_in_total", "cards"] == 40
    assert found["emberstate_rows_out_total", "cards", "main"] == 10
    assert found["emberstate_retries_total", "cards", "rate"] == 2
    assert found["emberstate_last_commit_timestamp_seconds", "cards"] == 12
    assert found["emberstate_watermark_lag_seconds", "cards"] == 9
    assert found["emberstate_slot_starts_total", "restored", "cards", "rate"] == 2
    assert found["emberstate_restore_seconds_sum", "cards", "rate"] == pytest.approx(0.6)
    assert found["emberstate_slot_rows_total", "cards", "1", "rate"] == 12
    assert found["emberstate_slot_memory_ratio", "cards", "1", "rate"] == pytest.approx(0.8)  # of both slots there
    assert found["emberstate_batch_seconds_count", "cards"] == 2
    assert {"spark"} == {key[2] for key in found if key[0] == "emberstate_part_seconds_total"}
    names = {re.sub(r"_(bucket|sum|count|created)$", "", key[0]) for key in found}
    assert set(METRICS) <= names


def test_series_of_slots_are_bounded_and_go_with_their_slots(served: PrometheusListener) -> None:
    """Catches: thousands of series for thousands of slots; an alert about a slot that a rescale has removed."""
    served.record(batch(*(slot(number) for number in range(MAX_SLOTS + 10))))
    slots = [key for key in scraped(served) if key[0] == "emberstate_slot_seconds"]
    assert len(slots) == MAX_SLOTS
    assert scraped(served)["emberstate_slot_batch_seconds_count", "cards", "rate"] == MAX_SLOTS + 10
    served.record(opening(2))
    served.record(batch(slot(0), slot(1)))
    assert len([key for key in scraped(served) if key[0] == "emberstate_slot_seconds"]) == 2


def test_opentelemetry_gets_the_same() -> None:
    """Catches: a kind of instrument that OpenTelemetry has otherwise; attributes that are lost."""
    reader = InMemoryMetricReader()
    listener = es.metrics.opentelemetry(MeterProvider(metric_readers=[reader]))
    listener.record(opening(1))
    listener.record(batch(slot(0, start="restored")))
    data = reader.get_metrics_data()
    assert data is not None
    found = {one.name: one.data for one in data.resource_metrics[0].scope_metrics[0].metrics}
    assert {name.removesuffix("_total") for name in METRICS} == set(found)
    (rows,) = found["emberstate_rows_in"].data_points
    assert (getattr(rows, "value", None), dict(rows.attributes or {})) == (20, {"job": "cards"})


def test_what_is_missing_or_taken_is_said(served: PrometheusListener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a traceback of a library that the user has never heard of."""
    with raising(StateDeclarationError, option="port", found=served.port):
        es.metrics.prometheus(served.port)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    for make in (lambda: es.metrics.prometheus(0), es.metrics.opentelemetry):
        with raising(InstallationError, expected="emberstate[metrics]"):
            make()


def test_page_alerts_and_dashboard_know_the_metrics() -> None:
    """Catches: a metric that is renamed, or is not on the page; a panel or an alert for one that does not exist."""
    page = (ROOT / "docs" / "how-to" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(emberstate_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", page, re.MULTILINE)
    told = {name: (kind, tuple(re.findall(r"`(\w+)`", labels)), text) for name, kind, labels, text in rows}
    assert told == {name: (metric.kind, metric.labels, metric.text) for name, metric in METRICS.items()}
    dashboard = json.loads((DEPLOY / "grafana" / "emberstate.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    alerts = (DEPLOY / "prometheus" / "alerts.yml").read_text(encoding="utf-8")
    used = {re.sub("_bucket$", "", name) for name in re.findall(r"\bemberstate_\w+", " ".join([*queries, alerts]))}
    assert len(queries) >= 20 and used <= set(METRICS)
