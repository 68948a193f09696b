"""What the playground says of a state."""

from __future__ import annotations

import json
import time

import pytest
from tests.pipeline.authoring.playground.states import PATH, RULE, state

from cmf.json.value import replace
from pipeline.authoring.playground.evaluation import KEPT_SETS, Evaluator
from pipeline.authoring.playground.state import PolicyFile, State

pytestmark = pytest.mark.native


@pytest.fixture
def evaluator() -> Evaluator:
    return Evaluator()


@pytest.mark.spec("PLAY-4")
@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (RULE.replace("} if {", "} if if {"), 9),
        (RULE.replace("input.role ==", "input.role =="[:-1] + "= ="), 11),
        (RULE.replace("contains(input", "http.send(input"), 10),
        (RULE.replace("severity: high", "severity: huge"), 5),
    ],
)
def test_a_policy_that_does_not_compile_is_reported_with_its_place(evaluator: Evaluator, rule: str, line: int) -> None:
    answer = evaluator.evaluate(state(rule=rule))

    assert answer.keys() == {"problems"}
    (problem,) = answer["problems"]
    assert (problem["pane"], problem["file"]) == ("policy", PATH)
    assert (problem["line"], bool(problem["message"])) == (line, True)


@pytest.mark.spec("PLAY-4")
def test_all_panes_say_what_is_wrong_with_them_at_once(evaluator: Evaluator) -> None:
    answer = evaluator.evaluate(replace(state(rule="package x\nallow :="), conversation="- {"))

    assert [problem["pane"] for problem in answer["problems"]] == ["policy", "conversation"]


@pytest.mark.spec("PLAY-3")
@pytest.mark.spec("PLAY-5")
def test_a_deny_is_shown_with_rule_place_and_detail(evaluator: Evaluator) -> None:
    answer = evaluator.evaluate(state())

    assert (answer["verdict"], answer["action"], answer["out"]) == ("deny", "refuse", {})
    (hit,) = [hit for view in answer["views"] for hit in view["hits"]]
    assert (hit["rule"], hit["code"], hit["file"], hit["line"]) == ("words/forbidden", "words.forbidden", PATH, 9)
    assert json.loads(hit["detail"]) == {"role": "user"}
    assert answer["rules"][0]["stopped"] == []
    assert (answer["rules"][0]["asked"], answer["rules"][0]["hit"]) == (1, 1)


@pytest.mark.spec("PLAY-5")
def test_what_rules_print_is_shown_with_its_place(evaluator: Evaluator) -> None:
    said = RULE.replace("} if {", '} if {\n\tprint("saw", input.content, input.nothing)')

    answer = evaluator.evaluate(state("hello\u202e", rule=said))

    assert answer["printed"] == [{"file": PATH, "line": 10, "text": "saw hello\\u{202e} <undefined>"}]
    assert evaluator.evaluate(state("hello"))["printed"] == []


@pytest.mark.spec("PLAY-5")
def test_a_rule_that_did_not_hit_says_at_which_expression_with_which_values_it_stopped(evaluator: Evaluator) -> None:
    answer = evaluator.evaluate(state("hello"))

    assert (answer["verdict"], answer["rules"][0]["asked"], answer["rules"][0]["hit"]) == ("allow", 1, 0)
    assert 10 in answer["lines"][PATH]["covered"]
    assert 11 in answer["lines"][PATH]["missed"]
    (stop,) = answer["rules"][0]["stopped"]
    assert stop == {
        "line": 10,
        "text": 'contains(input.content, "xyzzy")',
        "held": 0,
        "of": 3,
        "had": [["input.content", '"hello"']],
        "behind": [],
    }
    assert answer["out"]["format"] == "openai_chat"
    assert list(answer["lines"]) == [PATH]


@pytest.mark.spec("PLAY-5")
def test_of_several_views_the_one_tells_where_a_rule_came_furthest_and_what_is_behind(evaluator: Evaluator) -> None:
    rule = RULE.replace(
        '\tcontains(input.content, "xyzzy")\n', '\tinput.role == "user"\n\tcount(input.content) > 3\n\tnot _polite\n'
    )
    rule += '\n_polite if contains(input.content, "please")\n'
    conversation = "[{role: user, text: hi}, {role: user, text: 'please go'}, {role: assistant, text: 'yes, I will'}]"

    (told,) = evaluator.evaluate(replace(state(rule=rule), conversation=conversation))["rules"]

    (stop,) = told["stopped"]
    assert (stop["line"], stop["text"], stop["held"], stop["of"]) == (12, "not _polite", 2, 5)
    assert stop["had"] == [["_polite", "true"]]


@pytest.mark.spec("PLAY-5")
def test_values_are_the_input_that_policy_saw_under_the_references_of_the_command(evaluator: Evaluator) -> None:
    """A rule that denies where every shown path has its shown value, denies."""
    shown = evaluator.evaluate(state("hello", context="subject: {id: ann}"))["views"][-1]["values"]
    # Of the session a rule sees what it was granted, and this one was granted nothing.
    own = [(path, value) for path, value in shown if not path.startswith("input.session")]
    tests = "\n".join(f"\t{path} == {value}" for path, value in own)
    rule = RULE.replace('\tcontains(input.content, "xyzzy")\n', tests + "\n")

    answer = evaluator.evaluate(state("hello", rule=rule, context="subject: {id: ann}"))

    assert len(shown) > 10
    assert answer.get("verdict") == "deny", (shown, answer)


@pytest.mark.spec("PLAY-3")
def test_files_that_are_only_data_are_settings_over_the_shipped_rules(evaluator: Evaluator) -> None:
    settings = (PolicyFile(path="cmf/defaults/data.json", text="{}"),)

    answer = evaluator.evaluate(replace(state("my key is AKIAIOSFODNN7EXAMPLE"), files=settings))

    assert answer["action"] == "forward_modified"
    assert "data/secrets" in {hit["rule"] for view in answer["views"] for hit in view["hits"]}
    assert "AKIA" not in answer["out"]["body"]
    assert [label for view in answer["views"] for label in view["added"]]


@pytest.mark.spec("PLAY-5")
def test_a_wire_format_goes_out_as_itself_and_one_that_cannot_says_so(evaluator: Evaluator) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]})
    wire = replace(state(), format="openai_chat", conversation=body)

    assert json.loads(evaluator.evaluate(wire)["out"]["body"]) == json.loads(body)
    response = json.dumps({"id": "1", "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}]})
    said = evaluator.evaluate(replace(wire, conversation=response, kind="response"))
    assert said["verdict"] == "allow", said


@pytest.mark.spec("PLAY-9")
def test_invisible_characters_are_escapes(evaluator: Evaluator) -> None:
    rule = RULE.replace('"detail": {"role": input.role}', '"detail": {"said": input.content}')
    rule = rule.replace('"reason": "This may not be said."', '"reason": concat("", ["no: ", input.content])')

    answer = evaluator.evaluate(state("xyzzy \u202e\u200b\x07", rule=rule))

    shown = json.dumps(answer["views"], ensure_ascii=False)
    assert answer["verdict"] == "deny"
    assert not {"\u202e", "\u200b", "\x07"} & set(shown)
    assert "202e" in shown


@pytest.mark.spec("PLAY-12")
@pytest.mark.parametrize(
    "body",
    [
        "count([1 | some a in numbers.range(1, 1000000); some b in numbers.range(1, 1000000)]) > 0",
        'regex.match("(a+)+$", concat("", ["a" | some _ in numbers.range(1, 100000)]))',
        'count(split(concat("", ["a" | some a in numbers.range(1, 9999); some b in numbers.range(1, 9999)]), "a")) > 1',
    ],
)
def test_a_policy_that_would_run_for_ever_ends_in_a_deny(evaluator: Evaluator, body: str) -> None:
    rule = RULE.replace('contains(input.content, "xyzzy")', body)
    begin = time.monotonic()

    answer = evaluator.evaluate(state(rule=rule))

    assert time.monotonic() - begin < 10
    assert answer["problems"] or answer["verdict"] == "deny"


@pytest.mark.spec("PLAY-12")
def test_yaml_that_spells_more_than_memory_holds_is_a_problem_of_its_pane(evaluator: Evaluator) -> None:
    bomb = "\n".join(["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)])
    in_metadata = RULE.replace("# custom:", "\n".join(f"# {line}" for line in bomb.split("\n")) + "\n# custom:")

    answer = evaluator.evaluate(replace(state(rule=in_metadata), conversation=bomb, context=bomb))

    assert {problem["pane"] for problem in answer["problems"]} == {"policy", "context"}


def test_only_so_many_compiled_sets_are_kept(evaluator: Evaluator) -> None:
    for number in range(KEPT_SETS + 2):
        evaluator.evaluate(state(rule=f"{RULE}# {number}\n"))

    assert evaluator._compiled.cache_info().currsize == KEPT_SETS
    evaluator.evaluate(state(rule=f"{RULE}# {KEPT_SETS}\n"))
    assert evaluator._compiled.cache_info().hits == 1


def test_an_empty_page_is_two_problems(evaluator: Evaluator) -> None:
    assert len(evaluator.evaluate(State())["problems"]) >= 1
