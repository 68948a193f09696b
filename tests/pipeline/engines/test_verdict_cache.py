"""Remembered verdicts are the verdicts that would have been given, and what changes is asked each time."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.policy_files import Write, write

from cmf.enums import ViewKind
from pipeline.decisions.engine import Decided, EngineResult, Failed, Undefined
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.engines.verdict_cache import ReusingEngine
from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet

__all__ = ["write"]  # a fixture

SECONDS = 5.0
SAMPLES = sorted((policy_set.shipped() / "cmf" / "rules").glob("*/*/samples/*.json"))


class Watched:
    """An engine that keeps what it was asked."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self._engine = engine
        self.asked: list[str] = []

    @property
    def revision(self) -> str:
        return self._engine.revision

    def evaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        self.asked += entrypoints
        return self._engine.evaluate(entrypoints, shared, views, timeout_seconds=timeout_seconds)

    async def aevaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        self.asked += entrypoints
        return await self._engine.aevaluate(entrypoints, shared, views, timeout_seconds=timeout_seconds)

    def close(self) -> None:
        self._engine.close()


def rule(name: str, body: str, capabilities: str = "", effect: str = "deny") -> dict[str, str]:
    member = f'{{"code": "t.{name}", "reason": "r", "detail": {{"x": x}}, "label": "l"}}'
    text = (
        f"# METADATA\n# title: T\n# custom:\n#   code: t.{name}\n#   severity: high\n#   kinds: [text, tool_call]\n"
        f"#   capabilities: [{capabilities}]\npackage cmf.rules.t.{name}\n\n"
        f"{effect} contains {member} if {{\n{body}\n}}\n"
    )
    return {f"cmf/rules/t/{name}/{name}.rego": text}


RULES = (
    rule("words", 'some x in split(input.content, " ")\nstartswith(x, "bad")')
    | rule("custom", "x := input.extensions.custom.mark", effect="label")
    | rule("session", "some x in input.session.labels", "read_labels", effect="warn")
    | rule("walked", "walk(input.arguments, [_, x])\nx == 3")
    | rule("numbers", "x := to_number(input.properties.duration_ms)\nx > 3")
)


def engines(policies: PolicySet, **options: int) -> tuple[EmbeddedEngine, Watched, ReusingEngine]:
    modules = [(module.path, module.text) for module in policies.modules]
    plain = EmbeddedEngine(modules, policies.data, policies.entrypoints, revision=policies.revision)
    watched = Watched(plain)
    return plain, watched, ReusingEngine(watched, policies.parts, policies.capabilities, **options)


@pytest.fixture
def policies(write: Write) -> PolicySet:
    return policy_set.load(write(RULES))


TEXT = "data.cmf.main.text.decision"
CALL = "data.cmf.main.tool_call.decision"


def view(**own: Any) -> bytes:
    return json.dumps({"kind": "text", "properties": {}} | own).encode()


def shared(**own: Any) -> bytes:
    return json.dumps({"extensions": {}} | own).encode()


def ask(engine: Any, entrypoint: str, document: bytes, context: bytes = b"{}") -> EngineResult:
    (result,) = engine.evaluate([entrypoint], context, [document], timeout_seconds=SECONDS)
    return result


def codes(result: EngineResult) -> list[str]:
    assert isinstance(result, Decided), result
    return [effect["code"] for effects in result.value.values() for effect in effects]


@pytest.mark.spec("POL-29")
def test_rules_are_parted_by_what_they_read_and_by_the_form_that_serves_them(policies: PolicySet) -> None:
    parts = policies.parts[TEXT]

    assert parts.local == {"t/words", "t/custom", "t/numbers"}
    assert parts.slow == "data.cmf.main.text_slow.decision"
    assert parts.rest == ("data.cmf.main.text_rest.decision",)
    assert policies.parts["data.cmf.main.image.decision"].local == frozenset()


@pytest.mark.spec("POL-29")
@pytest.mark.slow
def test_more_rules_than_a_compiled_program_holds_are_asked_in_compiled_parts(write: Write) -> None:
    words = [f"w{number}" for number in range(270)]
    many = [rule(f"local{word}", f'some x in split(input.content, " ")\nx == "{word}"') for word in words]
    many += [
        rule(f"late{word}", f'some x in input.session.labels\nx == "{word}"', "read_labels", effect="warn")
        for word in words[:130]
    ]
    policies = policy_set.load(write({path: text for one in many for path, text in one.items()}))
    plain, watched, engine = engines(policies)
    parts = policies.parts[TEXT]

    question = TEXT, view(content="w1 w150 w269"), shared(session={"labels": ["w2", "w129"]})
    fresh = ask(engine, *question)
    watched.asked.clear()
    again = ask(engine, *question)

    assert (len(parts.fast), len(parts.rest), parts.slow) == (4, 2, None)
    assert [plain.forms[name] for name in (*parts.fast, *parts.rest)] == [None] * 6
    assert plain.forms[TEXT] is not None  # all at once only the interpreter could
    assert watched.asked == [*parts.rest]
    expected = ["t.localw1", "t.localw150", "t.localw269", "t.latew129", "t.latew2"]
    assert codes(fresh) == codes(again) == codes(ask(plain, *question)) == expected


@pytest.mark.spec("POL-29")
def test_what_changes_is_asked_again_and_what_did_not_is_not(policies: PolicySet) -> None:
    _, watched, engine = engines(policies)
    bad, counted = view(content="a badger"), {"counters": {"calls": 1}}

    assert codes(ask(engine, TEXT, bad, shared(session=counted))) == ["t.words"]
    watched.asked.clear()
    assert codes(ask(engine, TEXT, bad, shared(session={**counted, "labels": ["pii"]}))) == ["t.words", "t.session"]
    assert codes(ask(engine, TEXT, bad, shared(session=counted))) == ["t.words"]

    assert watched.asked == ["data.cmf.main.text_rest.decision", "data.cmf.main.text_slow.decision"] * 2
    assert engine.counts.reused == 2


@pytest.mark.spec("POL-29")
def test_where_the_session_holds_nothing_rules_that_read_it_are_not_asked_again(policies: PolicySet) -> None:
    _, watched, engine = engines(policies)
    bad, empty = view(content="a badger"), shared(session={"labels": [], "counters": {}, "events": []})

    for _ in range(2):
        assert codes(ask(engine, TEXT, bad, empty)) == ["t.words"]
    first = watched.asked[:2]
    assert codes(ask(engine, TEXT, bad, shared(session={"labels": ["pii"]}))) == ["t.words", "t.session"]

    assert first == ["data.cmf.main.text_fast.decision", "data.cmf.main.text_slow.decision"]
    assert watched.asked[2] == "data.cmf.main.text_slow.decision"
    assert watched.asked[3:] == first


@pytest.mark.spec("POL-29")
def test_verdicts_of_local_rules_in_a_session_are_not_reused_without_one(write: Write) -> None:
    origin = rule("origin", 'some x in input.origins\nx.kind == "web"', effect="warn")
    numbers = rule("numbers", "x := to_number(input.properties.duration_ms)\nx > 3")
    _, _, engine = engines(policy_set.load(write(origin | numbers)))
    call = view(kind="tool_call", properties={"duration_ms": "4"}, origins=[{"kind": "web"}])
    everything = ["t.numbers", "t.origin"]

    for session in ({"counters": {"calls": 1}}, {}, {"counters": {"calls": 2}}, {}):
        assert codes(ask(engine, CALL, call, shared(session=session))) == everything


@pytest.mark.spec("POL-29")
def test_a_context_that_cannot_be_read_is_not_one_of_an_empty_session(policies: PolicySet) -> None:
    _, watched, engine = engines(policies)

    for _ in range(2):
        for context in (b"{", b"[]"):
            assert isinstance(ask(engine, TEXT, view(content="a badger"), context), Failed)

    assert watched.asked == ["data.cmf.main.text_fast.decision", "data.cmf.main.text_slow.decision"] * 4


@pytest.mark.spec("POL-29")
def test_rules_that_read_of_the_agent_are_asked_each_time_in_an_empty_session(write: Write) -> None:
    body = "x := input.extensions.agent.agent_id"
    own = policy_set.load(write(RULES | rule("agent", body, "read_agent")))

    assert own.parts[TEXT].alone is None
    assert own.parts["data.cmf.main.image.decision"].alone is None


@pytest.mark.spec("POL-29")
@pytest.mark.parametrize(
    ("document", "context"),
    [
        (view(content="a badge"), shared()),
        (view(content="a badger", properties={"duration_ms": "4"}), shared()),
        (view(content="a badger", properties={"duration_ms": 4}), shared()),
        (view(content="a badger"), shared(extensions={"custom": {"mark": 1}})),
        (view(content="a badger"), shared(extensions={"custom": {"mark": None}})),
        (view(content="a badger", extensions={"custom": {"mark": 1}}), shared()),
        (view(), shared()),
    ],
)
def test_anything_else_that_is_read_is_another_verdict(policies: PolicySet, document: bytes, context: bytes) -> None:
    plain, _, engine = engines(policies)
    ask(engine, TEXT, view(content="a badger"), shared())

    assert ask(engine, TEXT, document, context) == ask(plain, TEXT, document, context)
    assert engine.counts.reused == 0


@pytest.mark.spec("POL-29")
def test_fields_that_no_rule_reads_do_not_prevent_reuse(policies: PolicySet) -> None:
    _, _, engine = engines(policies)

    for turn in (1, 2):
        ask(engine, TEXT, view(content="a badger"), shared(extensions={"agent": {"turn": turn}}))

    assert engine.counts.reused == 1


@pytest.mark.spec("POL-29")
@pytest.mark.parametrize(
    "document",
    [
        b'{"kind": "text", "properties": {"duration_ms": 1, "duration_ms": 2}}',
        b'{"kind": "text", "properties": {"duration_ms": NaN}}',
        b"nothing",
        b"[]",
    ],
)
def test_what_the_engine_refuses_is_asked_each_time(policies: PolicySet, document: bytes) -> None:
    plain, _, engine = engines(policies)
    first, second = (ask(engine, TEXT, document) for _ in range(2))

    assert first == second == ask(plain, TEXT, document)
    assert engine.counts.reused == 0


@pytest.mark.spec("POL-29")
@pytest.mark.parametrize("context", [b"nothing", b'{"extensions": {"custom": {"mark": 18446744073709551616}}}'])
def test_what_a_key_cannot_tell_is_asked_each_time(policies: PolicySet, context: bytes) -> None:
    plain, _, engine = engines(policies)
    first, second = (ask(engine, TEXT, view(content="a badger"), context) for _ in range(2))

    assert first == second == ask(plain, TEXT, view(content="a badger"), context)
    assert engine.counts.reused == 0


@pytest.mark.spec("POL-29")
def test_failures_are_not_remembered(policies: PolicySet) -> None:
    _, watched, engine = engines(policies)
    broken = view(content="a", properties={"duration_ms": "no number"})

    assert isinstance(ask(engine, TEXT, broken), Failed)
    assert isinstance(ask(engine, TEXT, broken), Failed)

    assert watched.asked.count("data.cmf.main.text_fast.decision") == 2


@pytest.mark.spec("POL-29")
def test_an_entrypoint_that_is_not_in_parts_is_asked_as_it_is(policies: PolicySet) -> None:
    plain, watched, engine = engines(policies)

    assert ask(engine, "data.cmf.main.decision", view(content="a")) == ask(
        plain, "data.cmf.main.decision", view(content="a")
    )
    assert ask(engine, "data.nothing", view(content="a")) == Failed("engine.no-entrypoint", "data.nothing")
    assert watched.asked == ["data.cmf.main.decision", "data.nothing"]


@pytest.mark.spec("POL-29")
def test_memory_is_bounded_and_what_was_used_last_stays(policies: PolicySet) -> None:
    _, _, engine = engines(policies, max_verdicts=2)

    for content in ("a", "b", "a", "c", "a", "b"):
        ask(engine, TEXT, view(content=content))

    assert engine.counts.reused == 2  # "a" twice; "b" had to go for "c"


@pytest.mark.spec("POL-29")
def test_a_verdict_of_many_effects_is_not_kept(policies: PolicySet) -> None:
    _, _, engine = engines(policies)
    many = view(content=" ".join(f"bad{number}" for number in range(65)))

    assert ask(engine, TEXT, many) == ask(engine, TEXT, many)
    assert engine.counts.reused == 0


@pytest.mark.spec("POL-29")
def test_what_a_caller_does_to_a_verdict_is_not_remembered(policies: PolicySet) -> None:
    _, _, engine = engines(policies)
    first = ask(engine, TEXT, view(content="a badger"))
    assert isinstance(first, Decided)
    first.value["deny"].clear()

    assert codes(ask(engine, TEXT, view(content="a badger"))) == ["t.words"]


@pytest.mark.spec("POL-29")
def test_other_capabilities_and_other_policies_are_other_verdicts(policies: PolicySet) -> None:
    plain = engines(policies)[0]
    reusing = [ReusingEngine(plain, policies.parts, capabilities) for capabilities in ((), policies.capabilities)]
    for each in reusing:
        ask(each, TEXT, view(content="a"))

    assert len({key for each in reusing for key in each._verdicts}) == 2


@pytest.mark.spec("POL-29")
async def test_awaited_questions_are_answered_alike(policies: PolicySet) -> None:
    plain, _, engine = engines(policies)
    documents = [view(content="a badger"), view(content="b"), view(content="a badger")]
    expected = plain.evaluate([TEXT] * 3, shared(), documents, timeout_seconds=SECONDS)

    for _ in range(2):
        assert await engine.aevaluate([TEXT] * 3, shared(), documents, timeout_seconds=SECONDS) == expected

    assert engine.counts.views == 6


WORDS = st.sampled_from(["bad", "badger", "good", "3", "3.0", ""])
VIEWS = st.builds(
    view,
    content=WORDS,
    arguments=st.dictionaries(WORDS, st.integers(2, 4) | st.none()),
    properties=st.dictionaries(st.just("duration_ms"), st.sampled_from(["1", "4", 4, None])),
    session=st.dictionaries(st.just("labels"), st.lists(WORDS)),
    extensions=st.dictionaries(st.just("custom"), st.dictionaries(st.just("mark"), st.integers(0, 2) | st.booleans())),
)


@settings(max_examples=50)
@given(data=st.data())
def test_answers_are_those_of_the_engine_within_whatever_was_asked_before(data: st.DataObject) -> None:
    plain, engine = _made()

    for _ in range(5):
        documents = data.draw(st.lists(VIEWS, max_size=4))
        names = [data.draw(st.sampled_from([TEXT, CALL])) for _ in documents]
        context = shared(extensions=data.draw(st.sampled_from([{}, {"custom": {"mark": 1}}])))
        expected = plain.evaluate(names, context, documents, timeout_seconds=SECONDS)
        assert engine.evaluate(names, context, documents, timeout_seconds=SECONDS) == expected


_MADE: list[tuple[EmbeddedEngine, ReusingEngine]] = []


def _made() -> tuple[EmbeddedEngine, ReusingEngine]:
    if not _MADE:
        import tempfile

        home = Path(tempfile.mkdtemp())
        for path, text in RULES.items():
            (home / path).parent.mkdir(parents=True)
            (home / path).write_text(text)
        plain, _, engine = engines(policy_set.load(home))
        _MADE.append((plain, engine))
    return _MADE[0]


@pytest.mark.spec("POL-29")
def test_shipped_rules_decide_each_sample_alike_in_parts_and_remembered() -> None:
    policies = policy_set.load(policy_set.shipped())
    plain, _, engine = engines(policies)
    documents = [json.loads(path.read_text()) for path in SAMPLES]
    names = [policies.entrypoint(ViewKind(document["kind"])) for document in documents]
    inputs = [json.dumps(document).encode() for document in documents]
    expected = plain.evaluate(names, b"{}", inputs, timeout_seconds=SECONDS)

    assert not any(isinstance(result, Failed | Undefined) for result in expected)
    for _ in range(2):
        for at in range(0, len(inputs), 50):
            some = slice(at, at + 50)
            found = engine.evaluate(names[some], b"{}", inputs[some], timeout_seconds=SECONDS)
            assert found == expected[some]
    assert engine.counts.reused > len(inputs) / 2


@pytest.mark.spec("POL-29")
def test_threads_share_what_is_remembered(policies: PolicySet) -> None:
    plain, _, engine = engines(policies, max_verdicts=8)
    documents = [view(content=f"bad{number % 20}") for number in range(60)]
    expected = {document: ask(plain, TEXT, document) for document in documents}
    wrong: list[bytes] = []

    def work(seed: int) -> None:
        order = random.Random(seed).sample(documents, len(documents))
        wrong.extend(document for document in order if ask(engine, TEXT, document) != expected[document])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert engine.counts.views == 360


@pytest.mark.spec("POL-29")
def test_turn_n_evaluates_local_rules_for_what_is_new(policies: PolicySet, proof_row: Callable[..., None]) -> None:
    _, watched, engine = engines(policies)
    per_turn = []
    for turn in range(1, 101):
        watched.asked.clear()
        history = [view(content=f"word{number}", path=f"messages[{number}]") for number in range(turn)]
        engine.evaluate([TEXT] * turn, shared(), history, timeout_seconds=SECONDS)
        per_turn.append(watched.asked.count("data.cmf.main.text_fast.decision"))

    proof_row("Local rules are evaluated for what is new", turns=100, evaluations_per_turn=max(per_turn))
    assert per_turn == [1] * 100


@pytest.mark.spec("POL-29")
def test_a_long_session_is_not_parsed_and_still_says_something() -> None:
    from pipeline.engines.verdict_cache import LONG, _read

    session = '{"labels":[],"counters":{},"events":[' + ",".join(['{"type":"label"}'] * LONG) + '],"approvals":[]}'
    shared = f'{{"extensions":{{"custom":{{"a":1}}}},"session":{session}}}'.encode()
    empty = b'{"extensions":{"custom":{"a":"' + b"x" * LONG + b'"}},"session":{"labels":[],"events":[]}}'

    whole = _read(shared, ["session"])

    assert _read(shared, ["extensions"]) == ({"extensions": {"custom": {"a": 1}}}, False)
    assert not whole[1]
    assert _read(shared, ["nothing"]) == ({}, False)
    assert _read(shared, ["extensions", "session"]) == whole
    assert _read(shared[:-1], ["extensions"]) == (None, False)
    assert _read(empty, ["extensions"])[1]


@pytest.mark.spec("POL-29")
@pytest.mark.parametrize(
    ("document", "taken"),
    [
        ({"a": {"b": {"c": 1, "d": 2}, "e": 3}, "f": 4}, {"a": {"b": {"c": 1, "d": 2}}}),
        ({"a": {"b": None}, "g": {}}, {"a": {"b": None}, "g": {}}),
        ({"a": {}, "g": {"h": 1, "i": 2}}, {"a": {}, "g": {"h": 1}}),
        ({"a": "text", "g": None}, {"a": "text", "g": None}),
    ],
)
def test_a_key_holds_all_that_stands_where_rules_read_and_no_more(document: Any, taken: Any) -> None:
    from pipeline.engines.verdict_cache import _taken, _tree

    assert _taken(document, _tree([("a", "b", "c"), ("a", "b"), ("g", "h"), ("x",)])) == taken
    assert _taken(document, _tree([("a", "b"), ()])) == document
