"""The library as a whole: its pages, its standards, and what it does without an operator."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from scripts import rule_pages
from tests.policies.conftest import embed
from tests.policies.test_samples import EFFECT_OF, SAMPLES, hits, read, rule_of

from cmf import adapters
from cmf.enums import ViewKind
from cmf.views.iterate import iter_views
from pipeline import Guard
from pipeline.decisions.engine import Decided
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet

STANDARD = re.compile(
    r"OWASP-LLM(?:0[1-9]|10)|OWASP-ASI(?:0[1-9]|10)|NIST-[A-Z]{2}-[0-9]{1,2}"
    r"|NIST-AI-RMF-(?:GOVERN|MAP|MEASURE|MANAGE)-[0-9]\.[0-9]{1,2}"
)
# These know nothing until an operator says it: which tenants, which tools, which limits.
FOR_OPERATORS = {
    "content/prompt_leak",
    "data/egress",
    "identity/tenant_isolation",
    "request/tools_offered",
    "session/budget",
    "session/call_limit",
    "session/sequence",
    "session/taint_then_send",
    "tools/argument_bounds",
    "tools/definition_pinned",
    "tools/tool_allowed",
}


@pytest.mark.spec("POL-18")
def test_the_pages_are_up_to_date() -> None:
    made = rule_pages.pages()

    stale = [str(path) for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    assert stale == [], "run `make docs`"
    assert {path for path in rule_pages.PAGES.rglob("*.md") if path not in made} == set()


@pytest.mark.spec("POL-18")
def test_every_rule_names_standards_that_exist(shipped: PolicySet) -> None:
    for rule in shipped.rules:
        assert any(name.startswith("OWASP-") for name in rule.standards), rule.id
        assert [name for name in rule.standards if not STANDARD.fullmatch(name)] == [], rule.id


@pytest.mark.spec("POL-19")
def test_a_rule_that_needs_an_operator_does_nothing_without_one(shipped: PolicySet) -> None:
    engine = embed(shipped)
    views = [(rule_of(path), read(path)) for path in SAMPLES]

    answers = engine.evaluate(
        [shipped.entrypoint(ViewKind(view["kind"])) for _, view in views],
        b"{}",
        [json.dumps(view).encode() for _, view in views],
        timeout_seconds=20.0,
    )

    decisions = [answer.value for answer in answers if isinstance(answer, Decided)]
    assert len(decisions) == len(views)
    assert [rule for rule in FOR_OPERATORS for decision in decisions if hits(decision, rule)] == []


@pytest.mark.spec("POL-19")
def test_such_rules_are_exactly_the_ones_that_are_silent_on_their_own_samples(shipped: PolicySet) -> None:
    engine = embed(shipped)
    heard: Counter[str] = Counter()
    for path in SAMPLES:
        if EFFECT_OF[path.stem.partition("_")[0]] is None:
            continue
        view = read(path)
        (answer,) = engine.evaluate(
            [shipped.entrypoint(ViewKind(view["kind"]))], b"{}", [json.dumps(view).encode()], timeout_seconds=5.0
        )
        assert isinstance(answer, Decided)
        heard[rule_of(path)] += bool(hits(answer.value, rule_of(path)))

    assert {rule.id for rule in shipped.rules if not heard[rule.id]} == FOR_OPERATORS


@pytest.fixture(scope="module")
def engine(shipped: PolicySet) -> EmbeddedEngine:
    return embed(shipped)


def judged(policies: PolicySet, engine: EmbeddedEngine, name: str, own: dict[str, Any]) -> dict[str, Any]:
    """What the policies say of a request of that wire format with these fields."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **own}
    (view, *_) = iter_views(adapters.get(name).from_wire_request(body))
    (answer,) = engine.evaluate(
        [policies.entrypoint(ViewKind.REQUEST)], b"{}", [json.dumps(view.to_opa_input()["input"]).encode()],
        timeout_seconds=5.0,
    )  # fmt: skip
    assert isinstance(answer, Decided)
    return answer.value


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("anthropic_messages", {"max_tokens": 9, "mcp_servers": [{"type": "url", "url": "https://a.example"}]}),
        ("openai_chat", {"web_search_options": {}}),
        ("openai_chat", {"search_parameters": {"mode": "on"}}),
        ("openai_chat", {"enable_search": True}),
        ("openai_chat", {"venice_parameters": {"enable_web_search": "auto"}}),
        ("openai_chat", {"data_sources": [{"type": "azure_search"}]}),
        ("openrouter", {"plugins": [{"id": "web"}]}),
        ("openrouter", {"model": "acme/m:online"}),
        ("openrouter", {"models": ["acme/m:online"]}),
    ],
    ids=lambda own: own if isinstance(own, str) else list(own)[-1],
)
def test_a_tool_that_only_a_field_of_a_request_asks_for_is_refused(
    shipped: PolicySet, engine: EmbeddedEngine, name: str, own: dict[str, Any]
) -> None:
    assert list(hits(judged(shipped, engine, name, own), "tools/provider_executed")) == ["deny"]


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("openai_chat", {"n": 99}),
        ("openai_chat", {"temperature": 9}),
        ("gemini", {"contents": [], "generationConfig": {"candidateCount": 99}}),
        ("anthropic_messages", {"max_tokens": 9, "fallbacks": [{"model": "m2", "temperature": 9}]}),
    ],
    ids=lambda own: own if isinstance(own, str) else list(own)[-1],
)
def test_a_parameter_is_found_where_its_wire_format_has_it(
    shipped: PolicySet, engine: EmbeddedEngine, name: str, own: dict[str, Any]
) -> None:
    assert list(hits(judged(shipped, engine, name, own), "request/parameters")) == ["deny"]
    assert not hits(judged(shipped, engine, name, {"max_tokens": 9, "contents": [], "n": None}), "request/parameters")


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("anthropic_messages", {"max_tokens": 9, "fallbacks": [{"model": "other"}]}),
        ("openrouter", {"models": ["m", "other"]}),
        ("gemini", {"contents": [], "generationConfig": {"routingConfig": {"manualMode": {"modelName": "other"}}}}),
    ],
    ids=lambda own: own if isinstance(own, str) else list(own)[-1],
)
def test_models_that_a_request_turns_to_are_held_to_the_list_too(
    tmp_path: Path, name: str, own: dict[str, Any]
) -> None:
    (tmp_path / "cmf" / "defaults").mkdir(parents=True)
    settings = {"request": {"model_allowed": {"any_classification": ["llm://*/m"]}}}
    (tmp_path / "cmf" / "defaults" / "data.json").write_text(json.dumps(settings))
    policies = policy_set.load(policy_set.shipped(), tmp_path)
    engine = embed(policies)

    assert list(hits(judged(policies, engine, name, own), "request/model_allowed")) == ["deny"]
    assert not hits(judged(policies, engine, name, {"max_tokens": 9, "contents": []}), "request/model_allowed")


@pytest.fixture(scope="module")
def guard() -> Guard:
    return Guard()


BODIES: dict[str, dict[str, Any]] = {
    "openai_chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "openai_responses": {"model": "m", "input": "hi", "store": False},
    "anthropic_messages": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    "gemini": {"model": "m", "contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    "ollama": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
}


@pytest.mark.spec("GW-164")
@pytest.mark.parametrize("dialect", BODIES)
def test_a_field_redirects_whatever_stands_before_its_end_and_metadata_may_hold_addresses(
    guard: Guard, dialect: str
) -> None:
    adapter = adapters.get(dialect)
    hostile: list[dict[str, Any]] = [
        {"openaiBaseUrl": "x"},
        {"WATSONX-URL": "x"},
        {"https_proxy": "x"},
        {"slack_webhook": "x"},
        {"success_callback": ["x"]},
        {"metadata": {"anthropic_base_url": "x"}},
        {"metadata": {"litellm_params": {"inference_endpoint": "x"}}},
        {"fallbacks": [{"model": "m", "ollama_host": "x"}]},
    ]
    honest = {"metadata": {"page_url": "https://own.example", "host": "ann"}}

    for fields in hostile:
        request = adapter.from_wire_request({**BODIES[dialect], **fields})
        assert {reason.code for reason in guard.decide(request).reasons} == {"request.overrides"}, fields
    assert guard.decide(adapter.from_wire_request({**BODIES[dialect], **honest})).reasons == ()


@pytest.mark.spec("GW-164")
@pytest.mark.parametrize("dialect", BODIES)
def test_no_dialect_takes_a_field_that_redirects_another_gateway(guard: Guard, dialect: str) -> None:
    adapter = adapters.get(dialect)
    beside = adapter.from_wire_request({**BODIES[dialect], "api_base": "http://169.254.169.254"})
    within = adapter.from_wire_request({**BODIES[dialect], "metadata": {"extra_headers": {"x": "y"}}})
    honest = adapter.from_wire_request({**BODIES[dialect], "metadata": {"user_id": "ann"}})

    assert [reason.code for reason in guard.decide(beside).reasons] == ["request.overrides"]
    assert [reason.code for reason in guard.decide(within).reasons] == ["request.overrides"]
    assert guard.decide(honest).reasons == ()


@pytest.mark.spec("GW-164")
@pytest.mark.parametrize("dialect", BODIES)
@pytest.mark.parametrize(
    "fields",
    [
        {"baseURL": "http://169.254.169.254"},
        {"langfuse_host": "http://169.254.169.254"},
        {"aws_sts_endpoint": "http://169.254.169.254"},
        {"litellm_metadata": '{"api_base": "http://169.254.169.254"}'},
        {"config": {"targets": [{"targets": [{"apiKey": "k"}]}]}},
        {"config": {"targets": [{"targets": [{"targets": [{"weight": 1}]}]}]}},
        {"providerOptions": {"gateway": {"byok": {"openai": [{"apiKey": "k"}]}}}},
    ],
    ids=[
        "other letters",
        "logs elsewhere",
        "credentials elsewhere",
        "json in a text",
        "far within",
        "too far within",
        "own keys",
    ],
)
def test_no_spelling_or_place_hides_a_field_that_redirects(guard: Guard, dialect: str, fields: dict[str, Any]) -> None:
    request = adapters.get(dialect).from_wire_request({**BODIES[dialect], **fields})

    assert [reason.code for reason in guard.decide(request).reasons] == ["request.overrides"]


@pytest.mark.spec("GW-164")
@pytest.mark.parametrize("dialect", BODIES)
def test_metadata_of_the_client_s_own_is_no_redirection(guard: Guard, dialect: str) -> None:
    metadata = {"user_id": "ann", "note": '{"ticket": 7}', "session": "s-1", "organization": "north", "tenant_id": "t"}
    request = adapters.get(dialect).from_wire_request({**BODIES[dialect], "metadata": metadata})

    assert guard.decide(request).reasons == ()
