"""Several passes, one line per view: hits stay, and stay with what they are about."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.decisions.decision import Action, Effect, Hit, Verdict, ViewDecision
from pipeline.run.hits import DecisionLines


def line(path: str, *codes: str, effect: Effect = Effect.WARN) -> ViewDecision:
    hits = tuple(Hit(rule="a/b", code=code, effect=effect, reason="r", severity="warn") for code in codes)
    verdict = Verdict.DENY if effect is Effect.DENY and codes else Verdict.WARN if codes else Verdict.ALLOW
    return ViewDecision(
        path=path, kind="text", role="user", uri=None, name=None, action="send", direction="pre", verdict=verdict,
        outcome=Action.REFUSE if verdict is Verdict.DENY else Action.FORWARD, hits=hits,
    )  # fmt: skip


def codes(passes: DecisionLines) -> dict[str, list[str]]:
    return {view.path: [hit.code for hit in view.hits] for view in passes.lines}


@pytest.mark.spec("DEC-8")
def test_a_later_denial_makes_the_line_a_denial_and_nothing_takes_it_back() -> None:
    passes = DecisionLines()
    passes.add([line("content[0]", "one")])
    passes.add([line("content[0]", "two", effect=Effect.DENY)])
    passes.add([line("content[0]")])

    (view,) = passes.lines
    assert (view.verdict, view.outcome, codes(passes)) == (
        Verdict.DENY, Action.REFUSE, {"content[0]": ["one", "two"]},
    )  # fmt: skip


@pytest.mark.spec("DEC-8")
def test_a_view_that_is_new_has_a_line_only_if_something_hit_it() -> None:
    passes = DecisionLines()
    passes.add([line("content[0]", "one")])
    passes.add([line("content[0]", "one"), line("content[1]"), line("content[2]", "new")])

    assert codes(passes) == {"content[0]": ["one"], "content[2]": ["new"]}


@pytest.mark.spec("DEC-8")
def test_what_follows_something_removed_keeps_its_place_at_every_depth() -> None:
    passes = DecisionLines()
    passes.add([line(path) for path in ("tools[0]", "tools[1]", "tools[2]")])
    passes.removed(["tools[2]", "tools[0]", "messages[1].content[0]", "messages[1].content[2].content[1]"])

    assert passes.first_path("tools[0]") == "tools[1]"
    assert passes.first_path("messages[1].content[0]") == "messages[1].content[1]"
    assert passes.first_path("messages[1].content[1].content[1]") == "messages[1].content[2].content[2]"
    assert passes.first_path("messages[0].content[0]") == "messages[0].content[0]"
    assert passes.first_path("request") == "request"

    passes.add([line("tools[0]", "late")])
    assert codes(passes) == {"tools[0]": [], "tools[1]": ["late"], "tools[2]": []}


@pytest.mark.spec("DEC-8")
def test_a_line_that_is_the_same_is_the_same_object_and_new_origins_are_kept() -> None:
    passes = DecisionLines()
    before = line("content[0]", "one")
    passes.add([before])
    passes.add([replace(before)])
    assert passes.lines[0] is before

    passes.add([replace(before, origins=[{"path": "/to"}])])
    assert passes.lines[0].origins == [{"path": "/to"}]


@pytest.mark.spec("PIPE-17")
def test_a_line_that_a_later_pass_judged_was_not_taken_over() -> None:
    taken, judged = replace(line("content[0]"), reused=True), line("content[0]")
    passes = DecisionLines()
    passes.add([taken], reused=1)
    passes.add([taken], reused=1)
    assert passes.lines[0].reused
    passes.add([judged], reused=0)
    assert not passes.lines[0].reused


@pytest.mark.spec("DEC-8")
@given(st.lists(st.lists(st.integers(0, 7), unique=True), max_size=4), st.integers(1, 8))
def test_places_are_those_of_a_list_that_really_shrinks(rounds: list[list[int]], length: int) -> None:
    items, passes = list(range(length)), DecisionLines()
    passes.add([line(f"tools[{place}]") for place in items])
    for taken in rounds:
        assert [passes.first_path(f"tools[{place}]") for place in range(len(items))] == [f"tools[{n}]" for n in items]
        gone = [place for place in taken if place < len(items)]
        passes.removed(f"tools[{place}]" for place in gone)
        items = [item for place, item in enumerate(items) if place not in gone]
