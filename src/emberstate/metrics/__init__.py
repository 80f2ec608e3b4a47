"""Metrics of running jobs: for Prometheus, and for OpenTelemetry. Needs the extra `metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emberstate._exports import exported

if TYPE_CHECKING:
    from emberstate.metrics.open_telemetry import OpenTelemetryListener as OpenTelemetryListener
    from emberstate.metrics.open_telemetry import opentelemetry as opentelemetry
    from emberstate.metrics.prometheus_server import PrometheusListener as PrometheusListener
    from emberstate.metrics.prometheus_server import prometheus as prometheus

__all__ = ["OpenTelemetryListener", "PrometheusListener", "opentelemetry", "prometheus"]

if not TYPE_CHECKING:
    __getattr__ = exported(
        __name__,
        {
            "open_telemetry": ["OpenTelemetryListener", "opentelemetry"],
            "prometheus_server": ["PrometheusListener", "prometheus"],
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
