"""`prometheus`: serves the metrics of this process's jobs for Prometheus to scrape.

Thread safety: any thread; the server has a thread of its own.
"""

from __future__ import annotations

import threading
from typing import Any

from emberstate.checkpoint.history.listener import RecordListener
from emberstate.checkpoint.history.model import HistoryRecord
from emberstate.errors import StateDeclarationError
from emberstate.metrics.catalogue import BUCKETS, METRICS, Recorder, missing, record_metrics


class PrometheusListener(RecordListener, Recorder):
    """The metrics, and the server that shows them; one may listen to several pipelines."""

    def __init__(self, port: int, address: str) -> None:
        try:
            import prometheus_client
        except ModuleNotFoundError as error:
            raise missing(error) from None
        self._lock = threading.Lock()
        self._registry = prometheus_client.CollectorRegistry()
        self._metrics: dict[str, Any] = {}
        for name, metric in METRICS.items():
            if metric.kind == "histogram":
                made: Any = prometheus_client.Histogram(
                    name, metric.text, metric.labels, buckets=BUCKETS, registry=self._registry
                )
            else:
                kind = prometheus_client.Counter if metric.kind == "counter" else prometheus_client.Gauge
                made = kind(name, metric.text, metric.labels, registry=self._registry)
            self._metrics[name] = made
        self._slots: set[tuple[str, tuple[str, ...]]] = set()  # gauges of slots, by name and labels
        try:
            self._server, self._thread = prometheus_client.start_http_server(port, address, self._registry)
        except (OSError, OverflowError) as error:
            what = f"metrics cannot be served at {address}, port {port}: {error}. Choose another port."
            raise StateDeclarationError(what, option="port", found=port) from error
        #: Where it listens.
        self.port: int = self._server.server_port

    def record(self, record: HistoryRecord) -> None:
        with self._lock:
            if record.kind == "opening":
                self._forget_slots(record.job)  # there may be fewer now
            record_metrics(record, self)

    def count(self, name: str, amount: float, *labels: str) -> None:
        self._metrics[name].labels(*labels).inc(amount)

    def put(self, name: str, value: float, *labels: str) -> None:
        if "slot" in METRICS[name].labels:
            self._slots.add((name, labels))
        self._metrics[name].labels(*labels).set(value)

    def observe(self, name: str, value: float, *labels: str) -> None:
        self._metrics[name].labels(*labels).observe(value)

    def _forget_slots(self, job: str) -> None:
        for name, labels in [one for one in self._slots if one[1][0] == job]:
            self._metrics[name].remove(*labels)
            self._slots.discard((name, labels))

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def prometheus(port: int, *, address: str = "127.0.0.1") -> PrometheusListener:
    """Serve metrics at `/metrics` of this port, for `Pipeline.listener`; 0 chooses a free port.

    Anybody who reaches the address can read them. `address="0.0.0.0"` lets other machines.

    >>> import emberstate as es
    >>> metrics = es.metrics.prometheus(0)
    >>> cards = es.Pipeline("cards", es.MemoryStateBackend()).listener(metrics)
    >>> metrics.close()

    Raises:
        InstallationError: the extra `metrics` is not installed.
        StateDeclarationError: the port is taken.
    """
    return PrometheusListener(port, address)
