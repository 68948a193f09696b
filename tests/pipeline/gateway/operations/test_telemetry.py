"""Spans and metrics say what was decided, how long it took and within whose request, and never what was said."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.processes import CHAT, asked, said
from tests.pipeline.gateway.servers import running, script, until

from pipeline.decisions.errors import ConfigError
from pipeline.decisions.json_log import JsonLines
from pipeline.gateway import service
from pipeline.gateway.config import config_file
from pipeline.gateway.config.settings import Telemetry as TelemetrySettings
from pipeline.gateway.operations import telemetry
from pipeline.gateway.operations.telemetry import Telemetry

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
DENY = 'deny contains {"code": "no.forbidden", "reason": "Not this."} if contains(input.content, "forbidden")'


class Told:
    """What a gateway told, kept in memory."""

    def __init__(self, *, genai_names: bool = False) -> None:
        self.spans = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.telemetry = Telemetry(tracers, MeterProvider([self.reader]), genai_names=genai_names)

    def named(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """The spans of that name, once there are so many: the client has its answer before its span ends."""
        until(lambda: len(self._named(name)) >= count)
        return self._named(name)

    def _named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans.get_finished_spans() if span.name == name]

    def points(self, name: str) -> list[Any]:
        data = json.loads(self.reader.get_metrics_data().to_json())
        return [
            point
            for resource in data["resource_metrics"]
            for scope in resource["scope_metrics"]
            for metric in scope["metrics"]
            if metric["name"] == name
            for point in metric["data"]["data_points"]
        ]


@pytest.fixture
def front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Told]]:
    found = Told(genai_names=True)

    class Exported:
        def __enter__(self) -> Telemetry:
            return found.telemetry

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(service, "exported", lambda _: Exported())
    policies = write_rules(tmp_path / "policy", {"forbidden": DENY}, kinds="text")
    body = {
        "upstreams": {"up": script(tmp_path, {"text": "canary-reply"})},
        "routes": [{"name": "all", "upstream": "up"}],
        "policies": [str(policies)],
        "anonymous": True,
        "telemetry": {},
    }
    file = tmp_path / "cmf.yaml"
    file.write_text(yaml.safe_dump(body), encoding="utf-8")
    settings = config_file.load(file, {}).settings
    with service.assembled(settings, {}) as made, running(made.application, settings.limits) as url:
        yield url, found


@pytest.mark.spec("GW-170", "GW-171")
def test_a_request_is_a_span_of_its_caller_s_trace_and_its_decisions_are_within_it(front: tuple[str, Told]) -> None:
    url, found = front

    asked(url, "POST", CHAT, said("canary-text"), {"traceparent": PARENT, "x-cmf-session-id": "canary-session"})

    (request,) = found.named("gateway answer")
    decisions = found.named("run_guardrail cmf")
    assert request.context.trace_id == int(TRACE, 16)
    assert request.parent is not None
    assert request.parent.span_id == 0xB7AD6B7169203331
    assert len(decisions) == 2
    for one in decisions:
        assert one.parent is not None
        assert one.parent.span_id == request.context.span_id
        assert one.attributes is not None
        assert (one.attributes["cmf.verdict"], one.attributes["cmf.action"]) == ("allow", "forward")
        assert one.attributes["gen_ai.operation.name"] == "run_guardrail"
    assert request.attributes is not None
    assert request.attributes["http.response.status_code"] == 200
    assert request.attributes["cmf.decision.id"] == decisions[1].attributes["cmf.decision.id"]  # type: ignore[index]


@pytest.mark.spec("GW-170", "GW-172")
def test_spans_have_code_and_rules_of_a_refusal_and_no_content(front: tuple[str, Told]) -> None:
    url, found = front
    text = said("forbidden canary-text", user="canary-user")

    asked(url, "POST", CHAT, text, {"x-cmf-session-id": "canary-session", "traceparent": "canary"})
    asked(url, "POST", "/canary-path", {})
    asked(url, "GET", "/healthz")
    found.named("gateway unknown")

    (request,) = found.named("gateway answer")
    (decision,) = found.named("run_guardrail cmf")
    assert len(found.named("gateway unknown")) == 1
    assert len(found.spans.get_finished_spans()) == 3
    assert request.attributes is not None
    assert request.attributes["error.type"] == "no.forbidden"
    assert decision.attributes is not None
    assert decision.attributes["cmf.rules"] == ("test/forbidden",)
    assert decision.attributes["gen_ai.guardrail.action.type"] == "block"
    told = "".join(span.to_json() for span in found.spans.get_finished_spans())
    assert "canary" not in told
    assert "canary" not in str(found.points("cmf.decision.duration")) + str(
        found.points("cmf.gateway.request.duration")
    )


@pytest.mark.spec("GW-171")
def test_requests_and_decisions_are_measured(front: tuple[str, Told]) -> None:
    url, found = front

    for text in ("hi", "forbidden"):
        asked(url, "POST", CHAT, said(text))

    found.named("gateway answer", 2)
    points = found.points("cmf.gateway.request.duration")
    requests = {point["attributes"]["http.response.status_code"]: point for point in points}
    decisions = {point["attributes"]["cmf.verdict"]: point["count"] for point in found.points("cmf.decision.duration")}
    assert {status: point["count"] for status, point in requests.items()} == {200: 1, 403: 1}
    assert decisions == {"allow": 2, "deny": 1}
    assert requests[200]["sum"] > 0


@pytest.mark.spec("GW-172")
def test_an_outage_is_an_error_of_the_span(tmp_path: Path) -> None:
    found = Told()

    async def fails(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})

    with running(found.telemetry.around(fails)) as url:
        asked(url, "POST", CHAT, {})

    (span,) = found.named("gateway answer")
    assert span.status.status_code.name == "ERROR"


# -- where they go -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-171")
def test_what_waits_is_sent_before_the_end(tmp_path: Path) -> None:
    heard: list[str] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            heard.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        with telemetry.exported(TelemetrySettings(endpoint=address)) as exporting:
            exporting._tracer.start_span("x").end()
            exporting._requests.record(1.0)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

    assert set(heard) == {"/v1/traces", "/v1/metrics"}


@pytest.mark.spec("GW-170")
def test_without_the_extra_the_gateway_says_which_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    with pytest.raises(ConfigError) as caught, telemetry.exported(TelemetrySettings()):
        pass

    assert caught.value.code == "extra.missing"
    assert "cmf-pipeline[otel]" in caught.value.hint


@pytest.mark.spec("GW-172")
def test_each_log_line_is_an_object_and_quotes_no_exception() -> None:
    lines = JsonLines()

    def line(text: str, error: Exception | None = None) -> Any:
        info = None if error is None else (type(error), error, None)
        record = logging.LogRecord("pipeline.x", logging.ERROR, "", 0, text, (), info)
        record.created = 1_700_000_000.25
        return json.loads(lines.format(record))

    assert line('{"status":200}') == {"time": "2023-11-14T22:13:20.250Z", "level": "error", "status": 200}
    assert line("two\nlines")["text"] == "two\nlines"
    failed = line("failed", ValueError("canary"))
    assert failed["error"] == "ValueError"
    assert "canary" not in json.dumps(failed)
