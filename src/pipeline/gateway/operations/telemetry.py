"""Spans and metrics of OpenTelemetry, where `cmf-pipeline[otel]` is installed. Spec: docs/spec/gateway.md [GW-170] ff.

Nothing that a client said is in any of them: no path that we do not serve, no text, no name of a person or session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

from pipeline.audit.record import Record
from pipeline.decisions.errors import needs
from pipeline.gateway.config.settings import Telemetry as TelemetrySettings
from pipeline.gateway.http.endpoints import endpoint_of
from pipeline.gateway.http.incoming import Event, Receive, Scope, Send
from pipeline.gateway.operations.metrics import RUN_BUCKETS, rules_in

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

SERVICE: Final = "cmf-gateway"
_SCOPE: Final = "pipeline.gateway"
_PARENT: Final = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
# The draft's words for ours (conventions for guardrails, status Development).
_VERDICTS: Final = {"allow": "allow", "deny": "deny", "require_approval": "escalate", "warn": "warn"}
_ACTIONS: Final = {"forward": "allow", "forward_modified": "modify", "suspend": "escalate"}
Application = Callable[[Scope, Receive, Send], Any]


class Telemetry:
    """Where spans and metrics go."""

    def __init__(self, tracers: TracerProvider, meters: MeterProvider, *, genai_names: bool = False) -> None:
        self._tracer = tracers.get_tracer(_SCOPE)
        meter = meters.get_meter(_SCOPE)
        self._requests = meter.create_histogram(
            "cmf.gateway.request.duration", unit="s", description="Requests, by dialect and status."
        )
        self._decisions = meter.create_histogram(
            "cmf.decision.duration",
            unit="s",
            description="Decisions, by verdict and action.",
            explicit_bucket_boundaries_advisory=list(RUN_BUCKETS),
        )
        self._genai_names = genai_names

    def decided(self, record: Record) -> None:
        """One decision that is on record: a span within that of its request."""
        from opentelemetry.trace import SpanKind

        if record.kind != "decision":
            return
        attributes: dict[str, Any] = {
            "cmf.decision.id": record.id,
            "cmf.verdict": record.verdict,
            "cmf.action": record.action,
            "cmf.policy.revision": record.revision,
            "cmf.rules": sorted(rules_in(record)),
        }
        if self._genai_names:
            attributes |= {
                "gen_ai.operation.name": "run_guardrail",
                "gen_ai.guardrail.verdict.type": _VERDICTS.get(record.verdict, "modify"),
                "gen_ai.guardrail.action.type": _ACTIONS.get(record.action, "block"),
                "gen_ai.security.policy.id": record.revision,
            }
        end, seconds = time_ns(), (record.run_ns or 0) / 1e9
        begin, kind = end - round(seconds * 1e9), SpanKind.INTERNAL
        self._tracer.start_span("run_guardrail cmf", kind=kind, start_time=begin, attributes=attributes).end(end)
        self._decisions.record(seconds, {"cmf.verdict": record.verdict, "cmf.action": record.action})

    def around(self, application: Application) -> Application:
        """The application with a span and a measurement around each of its requests."""

        async def traced(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"] in ("/healthz", "/readyz", "/metrics"):
                await application(scope, receive, send)
                return
            with self._request(scope) as observe:

                async def send_observed(event: Event) -> None:
                    if event["type"] == "http.response.start":
                        observe(event["status"], _texts(event["headers"]))
                    await send(event)

                await application(scope, receive, send_observed)

        return traced

    @contextmanager
    def _request(self, scope: Scope) -> Iterator[Callable[[int, Mapping[str, str]], None]]:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        headers = _texts(scope["headers"])
        # The caller's span, where `traceparent` names one in the form that everybody reads alike.
        parent, caller = headers.get("traceparent", ""), Context()
        if _PARENT.fullmatch(parent):
            caller = TraceContextTextMapPropagator().extract({"traceparent": parent}, context=caller)
        endpoint = endpoint_of(scope["path"], [], headers)
        dialect = "-" if endpoint is None else endpoint.dialect.name
        operation = "unknown" if endpoint is None else endpoint.operation.value
        begin = time_ns()
        status = 0
        with self._tracer.start_as_current_span(
            f"gateway {operation}", context=caller, kind=SpanKind.SERVER,
            attributes={"http.request.method": scope["method"] if endpoint else "_OTHER", "cmf.dialect": dialect},
            record_exception=False, set_status_on_exception=False,
        ) as span:  # fmt: skip

            def observe(code: int, response_headers: Mapping[str, str]) -> None:
                nonlocal status
                status = code
                span.set_attribute("http.response.status_code", code)
                for name, header in _HEADERS.items():
                    if header in response_headers:
                        span.set_attribute(name, response_headers[header])
                if code >= 500:
                    span.set_status(Status(StatusCode.ERROR))

            try:
                yield observe
            finally:
                known: dict[str, str | int] = {"cmf.dialect": dialect, "http.response.status_code": status}
                self._requests.record((time_ns() - begin) / 1e9, known)


_HEADERS: Final = {
    "cmf.request.id": "x-request-id",
    "cmf.decision.id": "x-cmf-decision-id",
    "cmf.verdict": "x-cmf-verdict",
    "error.type": "x-cmf-code",
}


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1"): text.decode("latin-1") for name, text in headers}


@contextmanager
def exported(settings: TelemetrySettings) -> Iterator[Telemetry]:
    """What sends spans and metrics (OTLP over HTTP) until the end of the block; what waits is sent before that.

    Raises:
        MissingExtraError: the extra is not installed.
    """
    with needs("otel"):
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    base = None if settings.endpoint is None else settings.endpoint.rstrip("/")
    resource = Resource.create({"service.name": SERVICE})
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(endpoint=None if base is None else f"{base}/v1/traces"))
    )
    exporter = OTLPMetricExporter(endpoint=None if base is None else f"{base}/v1/metrics")
    meters = MeterProvider([PeriodicExportingMetricReader(exporter)], resource=resource)
    try:
        yield Telemetry(tracers, meters, genai_names=settings.genai_names)
    finally:
        tracers.shutdown()
        meters.shutdown()
