"""`opentelemetry`: hands the metrics of this process's jobs to OpenTelemetry.

Counters have their names without `_total`, which exporters add where it is usual. Thread safety: any thread.
"""

from __future__ import annotations

from typing import Any

from emberstate.checkpoint.history.listener import RecordListener
from emberstate.checkpoint.history.model import HistoryRecord
from emberstate.metrics.catalogue import BUCKETS, METRICS, Recorder, missing, record_metrics


class OpenTelemetryListener(RecordListener, Recorder):
    """The instruments of one meter; it may listen to several pipelines."""

    def __init__(self, provider: Any) -> None:
        try:
            from opentelemetry import metrics
        except ModuleNotFoundError as error:
            raise missing(error) from None
        meter = (metrics.get_meter_provider() if provider is None else provider).get_meter("emberstate")
        self._instruments: dict[str, Any] = {}
        for name, metric in METRICS.items():
            if metric.kind == "counter":
                made: Any = meter.create_counter(name.removesuffix("_total"), description=metric.text)
            elif metric.kind == "gauge":
                made = meter.create_gauge(name, description=metric.text)
            else:
                made = meter.create_histogram(
                    name, "s", metric.text, explicit_bucket_boundaries_advisory=list(BUCKETS)
                )
            self._instruments[name] = made

    def record(self, record: HistoryRecord) -> None:
        record_metrics(record, self)

    def count(self, name: str, amount: float, *labels: str) -> None:
        self._instruments[name].add(amount, _attributes(name, labels))

    def put(self, name: str, value: float, *labels: str) -> None:
        self._instruments[name].set(value, _attributes(name, labels))

    def observe(self, name: str, value: float, *labels: str) -> None:
        self._instruments[name].record(value, _attributes(name, labels))


def _attributes(name: str, labels: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(METRICS[name].labels, labels, strict=True))


def opentelemetry(provider: Any = None) -> OpenTelemetryListener:
    """Hand metrics to a meter provider, by default the process's own, for `Pipeline.listener`.

    >>> import emberstate as es
    >>> cards = es.Pipeline("cards", es.MemoryStateBackend()).listener(es.metrics.opentelemetry())

    Raises:
        InstallationError: the extra `metrics` is not installed.
    """
    return OpenTelemetryListener(provider)
