"""Slots, tiers and headers."""

from __future__ import annotations

import dataclasses
import json
import pickle

import pytest

import cmf
from cmf import (
    DataPolicy,
    Extensions,
    HttpExtension,
    Message,
    SecurityExtension,
    ShapeError,
    SubjectExtension,
    TextPart,
    TokenUsage,
)
from cmf.enums import Capability, ChainPolicy, RoutingMode, Tier
from cmf.message.security import is_sensitive, without_sensitive
from cmf.views.tiers import SLOTS, SUBJECT_FIELDS, granted

NAMED_BY_SEED_003 = {
    "RequestExtension": "environment request_id timestamp trace_id span_id",
    "AgentExtension": "input session_id conversation_id turn agent_id parent_agent_id conversation",
    "ConversationContext": "history summary topics",
    "HttpExtension": "headers",
    "SecurityExtension": "labels classification subject objects data",
    "SubjectExtension": "id type roles permissions teams claims",
    "ObjectSecurityProfile": "managed_by permissions trust_domain data_scope",
    "DataPolicy": "apply_labels allowed_actions denied_actions retention",
    "RetentionPolicy": "max_age_seconds policy delete_after",
    "ToolMetadata": "name title description input_schema output_schema server_id namespace annotations",
    "ResourceMetadata": "uri name description mime_type server_id annotations",
    "PromptMetadata": "name description arguments server_id annotations",
    "CompletionExtension": "stop_reason tokens model raw_format created_at latency_ms",
    "TokenUsage": "input_tokens output_tokens total_tokens",
    "ProvenanceExtension": "source message_id parent_id",
    "LLMExtension": "model_id provider capabilities",
    "FrameworkExtension": "framework framework_version node_id graph_id metadata",
}


@pytest.mark.spec("EXT-1")
@pytest.mark.spec("EXT-2")
def test_every_slot_and_every_field_of_the_subject_is_in_its_table() -> None:
    slots = {field.name for field in dataclasses.fields(Extensions)}  # type: ignore[arg-type]
    security = {f"security.{field.name}" for field in dataclasses.fields(SecurityExtension)}  # type: ignore[arg-type]

    assert set(SLOTS) == (slots - {"security"}) | security
    assert set(SUBJECT_FIELDS) == {field.name for field in dataclasses.fields(SubjectExtension)}  # type: ignore[arg-type]


@pytest.mark.spec("EXT-1")
@pytest.mark.parametrize(("name", "attributes"), NAMED_BY_SEED_003.items())
def test_every_attribute_that_the_source_names_is_a_field(name: str, attributes: str) -> None:
    fields = {field.name for field in dataclasses.fields(getattr(cmf, name))}

    assert set(attributes.split()) - fields == set()


@pytest.mark.spec("EXT-3")
def test_tiers_are_as_decided() -> None:
    by_tier = {tier: {name for name, slot in SLOTS.items() if slot.tier is tier} for tier in Tier}

    assert by_tier[Tier.GUARDED] == {"http"}
    assert by_tier[Tier.MONOTONIC] == {"security.labels", "delegation"}
    assert by_tier[Tier.MUTABLE] == {"custom"}
    assert SLOTS["http"].write is Capability.WRITE_HEADERS
    assert all(slot.write is None for name, slot in SLOTS.items() if name != "http")


@pytest.mark.spec("EXT-4")
@pytest.mark.parametrize("held", Capability)
@pytest.mark.parametrize("wanted", Capability)
def test_only_writing_headers_implies_another_capability(held: Capability, wanted: Capability) -> None:
    implied = (held, wanted) == (Capability.WRITE_HEADERS, Capability.READ_HEADERS)

    assert granted(frozenset({held}), wanted) == (held is wanted or implied)
    assert granted(None, wanted)
    assert granted(frozenset(), None)
    assert not granted(frozenset(), wanted)


@pytest.mark.spec("EXT-5")
@pytest.mark.parametrize(
    "name",
    [
        "Authorization", "AUTHORIZATION", "cookie", "X-API-Key", "x_api_key", "Set-Cookie", "Proxy-Authorization",
        "X-Amz-Security-Token", "X-Custom-Secret", "My-Password", "Api-Key", " authorization ", "X-Goog-Api-Key",
        "X-Vault-Credential-Id", "Ocp-Apim-Subscription-Key", "x-functions-key", "X-Auth-Key", "X-AccessKey",
        "X-Api.Key", "X-Auth", "Authentication", "Cf-Access-Jwt-Assertion", "X-Amzn-Oidc-Data", "DPoP",
        "X-Bearer", "X-Passwd",
    ],
)  # fmt: skip
def test_credentials_are_known_by_name(name: str) -> None:
    assert is_sensitive(name)
    assert without_sensitive({name: "x", "Accept": "y"}) == {"Accept": "y"}


@pytest.mark.spec("EXT-5")
@pytest.mark.parametrize(
    "name",
    ["Accept", "Content-Type", "X-Request-Id", "traceparent", "User-Agent", "X-Author", "X-Auth-Request-User",
     "Idempotency-Key", "X-Idempotency-Key", "Sec-WebSocket-Key", "X-Keyboard"],
)  # fmt: skip
def test_ordinary_headers_are_shown(name: str) -> None:
    assert not is_sensitive(name)


@pytest.mark.spec("EXT-6")
def test_no_restriction_and_nothing_allowed_are_two_values() -> None:
    unrestricted, nothing = DataPolicy(), DataPolicy(allowed_actions=())

    assert unrestricted.allowed_actions is None
    assert nothing.allowed_actions == ()
    assert unrestricted != nothing
    assert DataPolicy.model_validate_json(nothing.model_dump_json()) == nothing


@pytest.mark.spec("EXT-7")
def test_chain_policies_project_to_routing_modes() -> None:
    modes = {policy.value: RoutingMode.from_policy(policy).value for policy in ChainPolicy}

    assert modes == {
        "PER_MESSAGE_OVERRIDE": "override",
        "MANUAL_STICKY": "manual",
        "RULE": "rule",
        "PATTERN": "pattern",
        "DELEGATE_REQUEST": "delegate",
        "WORKSPACE_DEFAULT": "default",
        "GLOBAL_DEFAULT": "default",
    }
    assert RoutingMode.from_policy("RULE") is RoutingMode.RULE
    with pytest.raises(ValueError, match="NONSENSE"):
        RoutingMode.from_policy("NONSENSE")


@pytest.mark.spec("EXT-8")
def test_token_counts_are_counts() -> None:
    assert TokenUsage(input_tokens=1, cached_input_tokens=2).input_tokens == 1
    for wrong in (-1, 1.5, "1", True):
        with pytest.raises(ShapeError):
            TokenUsage(input_tokens=wrong)


@pytest.mark.spec("MSG-12")
@pytest.mark.parametrize("labels", [[["pii"]], [{}], ["pii", []]])
def test_a_set_of_anything_but_texts_is_refused(labels: list[object]) -> None:
    with pytest.raises(ShapeError):
        SecurityExtension.model_validate({"labels": labels})


@pytest.mark.spec("EXT-9")
def test_a_header_whose_value_was_not_kept_cannot_be_taken_for_one_with_a_value() -> None:
    held = HttpExtension(headers={"Authorization": "Bearer canary", "X-Trace": "t"})

    for copy in (
        HttpExtension.model_validate(held.model_dump()),
        HttpExtension.model_validate_json(held.model_dump_json()),
        pickle.loads(pickle.dumps(held)),
    ):
        assert copy != held
        assert copy.headers == {"Authorization": None, "X-Trace": "t"}
        extensions = Extensions(http=copy)
        view = next(Message(role="user", content=[TextPart(text="x")], extensions=extensions).iter_views())
        assert (view.has_header("authorization"), view.get_header("authorization")) == (True, None)
    assert held == HttpExtension(headers={"Authorization": "Bearer canary", "X-Trace": "t"})
    assert held != HttpExtension(headers={"Authorization": "Bearer other", "X-Trace": "t"})


@pytest.mark.spec("EXT-9")
def test_null_is_the_value_of_sensitive_headers_alone() -> None:
    for form in ({"X-Trace": None}, {"X-Trace": 1}):
        with pytest.raises(ShapeError):
            HttpExtension(headers=form)  # type: ignore[arg-type]
        with pytest.raises(ShapeError):
            HttpExtension.model_validate_json(json.dumps({"headers": form}))
