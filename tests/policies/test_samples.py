"""Every sample of every shipped rule, on both engines."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.policies.conftest import Judge

from cmf.adapters import FORMATS
from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet

RULES = policy_set.shipped() / "cmf" / "rules"
SAMPLES = sorted(RULES.glob("*/*/samples/*.json"))
EFFECT_OF = {
    "denied": "deny",
    "asked": "require_approval",
    "redacted": "redact",
    "stripped": "strip_tool",
    "labelled": "label",
    "warned": "warn",
    "allowed": None,
}
# Where secrets are planted: one sample of each rule, and all of the rules that read all of a view.
HOSTS = [
    path
    for path in SAMPLES
    if path == min(SAMPLES, key=lambda other: (other.parent != path.parent, other)) or path.parts[-3] == "secrets"
]
# What a sample shows: token → what must happen to it wherever somebody could have written it.
SECRETS = {
    "AWS": "AKIAIOSFODNN7EXAMPLE",
    "GitHub": "ghp_EXAMPLEabcdef1234567890NOTREAL00000x",
    "Anthropic": "sk-ant-api03-EXAMPLE-abcdef123456-NOTREAL",
    "Google": "AIzaSyEXAMPLE-abcdef1234567890-NOTREALx",
    "JWT": "eyJhbGciOiJub25lIn0.eyJzdWIiOiJFWEFNUExFIn0.EXAMPLEabcdef123456",
}
# Not free text: enums, the pipeline's own path into the message, and what it reads of the content.
CLOSED = {
    "addresses",
    "kind",
    "role",
    "hook",
    "path",
    "action",
    "is_pre",
    "is_post",
    "size_bytes",
    "extensions",
    "session",
    "origins",
}


def read(path: Path) -> dict[str, Any]:
    view: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return view


def rule_of(path: Path) -> str:
    return "/".join(path.relative_to(RULES).parts[:2])


def hits(decision: Mapping[str, Any], rule: str) -> dict[str, list[dict[str, Any]]]:
    """Effect → what `rule` asked for."""
    asked = {effect: [hit for hit in members if hit["rule"] == rule] for effect, members in decision.items()}
    return {effect: members for effect, members in asked.items() if members}


@pytest.mark.opa
@pytest.mark.spec("POL-13")
@pytest.mark.spec("POL-14")
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{rule_of(path)}/{path.stem}")
def test_a_sample_is_decided_as_its_name_says_on_both_engines(path: Path, judge: Judge, shipped: PolicySet) -> None:
    expected = EFFECT_OF[path.stem.partition("_")[0]]
    rule = next(rule for rule in shipped.rules if rule.id == rule_of(path))

    (decision,) = judge([read(path)])

    found = hits(decision, rule.id)
    assert set(found) == ({expected} if expected else set())
    for hit in (hit for members in found.values() for hit in members):
        assert hit["code"] == rule.code or hit["code"].startswith(f"{rule.code}.")
        assert hit["reason"]


@pytest.mark.spec("POL-13")
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{rule_of(path)}/{path.stem}")
def test_what_rides_along_in_a_sample_is_where_adapters_put_it(path: Path) -> None:
    extra = read(path).get("properties", {}).get("extra", {})

    assert {key.partition(".")[0] for key in extra} <= set(FORMATS)


@pytest.mark.spec("POL-13")
def test_every_rule_has_samples_of_both_kinds(shipped: PolicySet) -> None:
    kinds = Counter((rule_of(path), path.stem.startswith("allowed_")) for path in SAMPLES)

    assert {rule.id for rule in shipped.rules if kinds[rule.id, True] == 0 or kinds[rule.id, False] == 0} == set()


@pytest.fixture(scope="module", params=SECRETS)
def planted(request: pytest.FixtureRequest, judge: Judge) -> list[tuple[str, dict[str, Any]]]:
    """Each place of each host with the secret in it, and the decision on that view."""
    secret = SECRETS[request.param]
    found = [(f"{path.stem} {where}", view) for path in HOSTS for where, view in _with_planted(read(path), secret)]
    decisions = judge([view for _, view in found])
    return [(place, decision) for (place, _), decision in zip(found, decisions, strict=True)]


@pytest.mark.opa
@pytest.mark.spec("POL-22")
def test_a_secret_in_any_free_text_or_key_hits(planted: list[tuple[str, dict[str, Any]]]) -> None:
    assert len(planted) > 200
    assert [place for place, decision in planted if not hits(decision, "data/secrets")] == []


@pytest.mark.opa
@pytest.mark.spec("POL-22")
def test_no_effect_shows_what_it_found(planted: list[tuple[str, dict[str, Any]]]) -> None:
    text = json.dumps([decision for _, decision in planted])

    assert [secret for secret in SECRETS.values() if secret in text] == []


@pytest.mark.opa
@pytest.mark.spec("POL-21")
def test_spans_cut_out_exactly_what_was_found_whatever_stands_before_it(judge: Judge) -> None:
    secret = SECRETS["AWS"]
    texts = [
        f"{before}{secret}{after}{secret}" for before in ("", "é ", "🎉🎉 ", "\u200b\n") for after in (" ", " 🎉 ")
    ]
    view = {"kind": "text", "properties": {}, "extensions": {}}

    decisions = judge([view | {"content": text} for text in texts])

    for text, decision in zip(texts, decisions, strict=True):
        (hit,) = hits(decision, "data/secrets")["redact"]
        assert [text[start:end] for start, end in hit["spans"]] == [secret, secret]


@pytest.mark.opa
@pytest.mark.spec("POL-23")
@pytest.mark.parametrize(
    ("extensions", "session", "code"),
    [
        ({"security": {"labels": ["secret"]}}, {}, "data.label-to-sink"),
        ({"security": {"labels": []}}, {"labels": ["secret"]}, "data.label-to-sink"),
        ({}, {}, "data.label-to-sink.unknown"),
        ({"security": {}}, {"counters": {}}, "data.label-to-sink.unknown"),
        ({"security": {"labels": ["public"]}}, {}, None),
        ({}, {"labels": []}, None),
    ],
)
def test_a_sink_is_called_only_when_the_labels_are_known_and_allow_it(
    judge: Judge, extensions: dict[str, Any], session: dict[str, Any], code: str | None
) -> None:
    call = {
        "kind": "tool_call",
        "uri": "tool://mail/send_email",
        "arguments": {},
        "properties": {"executed_by": "client"},
    }

    (decision,) = judge([call | {"extensions": extensions, "session": session}])

    found = hits(decision, "data/label_to_sink").get("deny", [])
    assert [hit["code"] for hit in found] == ([code] if code else [])


def _with_planted(view: dict[str, Any], secret: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The view once for each string and key that somebody outside could have written, which is then `secret`."""
    for field in [name for name in view if name not in CLOSED]:
        for where, value in _variants(view[field], secret):
            yield f"{field}{where}", view | {field: value}
    yield "new key", view | {"properties": view["properties"] | {"extra": {secret: 1}}}


def _variants(value: Any, secret: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, str):
        yield "", secret
        yield "~", f"{value}\n{secret}"
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"/{key}(key)", {**{k: v for k, v in value.items() if k != key}, secret: item}
            yield from ((f"/{key}{where}", value | {key: other}) for where, other in _variants(item, secret))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            for where, other in _variants(item, secret):
                yield f"/{index}{where}", [*value[:index], other, *value[index + 1 :]]


# -- generated inputs --------------------------------------------------------------------------------------------------


@pytest.mark.opa
@pytest.mark.proof
@pytest.mark.spec("POL-14")
def test_engines_agree_on_generated_views_that_hit_and_that_just_miss(
    judge: Judge, shipped: PolicySet, proof_seed: int, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    chance = random.Random(proof_seed)
    fired: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    rounds = max(60, int(600 * proof_scale))
    total = 0
    for rule in shipped.rules:
        samples = [path for path in SAMPLES if rule_of(path) == rule.id]
        groups = [
            [read(path) for path in samples if path.stem.startswith("allowed_") is wanted] for wanted in (True, False)
        ]
        for group in groups:
            views = [_changed(chance.choice(group), chance) for _ in range(rounds)]
            total += len(views)
            for decision in judge(views):
                counted = fired if hits(decision, rule.id) else missed
                counted[rule.id] += 1

    proof_row("engines agree on generated views", views=total, fewest_hits=min(fired.values()))
    for rule in shipped.rules:
        assert fired[rule.id] >= 50, rule.id
        assert missed[rule.id] >= 50, rule.id


_WORDS = [
    "the",
    "key",
    "Token",
    "api_key = abc",
    "é",
    "🎉",
    "\u200b",
    "\ufe0f",
    "4012 8888",
    "sk-",
    "@",
    "://",
    "<&>",
    "\\n",
    "\x00",
    "\t",
    '"',
]


def _changed(view: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The view with noise around what it says and beside it, none of which should matter."""
    changed = json.loads(json.dumps(view))
    if changed["kind"] in {"text", "thinking", "tool_result"}:
        before, after = ([chance.choice(_WORDS) for _ in range(chance.randrange(12))] for _ in range(2))
        changed["content"] = " ".join([*before, "\n", changed.get("content", ""), "\n", *after])
    if isinstance(changed.get("arguments"), dict):
        changed["arguments"][chance.choice(_WORDS)] = [chance.choice(_WORDS), chance.randrange(1000), None, True, 0.5]
    noise = {chance.choice(_WORDS): chance.choice(_WORDS) for _ in range(chance.randrange(4))}
    changed["properties"] = changed["properties"] | {"noise": noise}
    return changed
