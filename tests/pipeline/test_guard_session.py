"""Blocks of code in which a session holds."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.pipeline.conftest import Rules

from cmf import Message, TextPart
from pipeline import Context, Guard

RULES = {
    "who": """
label contains {"code": "l", "reason": "x", "label": concat(" ", ["met", input.content])} if true

deny contains {"code": "who.is", "reason": "x", "detail": {"subject": object.get(
	input.extensions, ["security", "subject", "id"], "nobody",
)}} if contains(input.content, "who")
"""
}


def says(text: str) -> Message:
    return Message(role="user", content=[TextPart(text=text)])


def who(guard: Guard, **options: object) -> object:
    return guard.decide(says("who"), **options).reasons[0].detail["subject"]  # type: ignore[arg-type]


@pytest.fixture
def guard(guarded: Rules) -> Guard:
    return guarded(RULES, kinds="text", capabilities="read_labels, read_subject")


@pytest.mark.spec("GRD-6")
def test_everything_in_a_block_belongs_to_its_session_and_nothing_outside(guard: Guard) -> None:
    with guard.session("s", subject={"id": "ann"}) as context:
        assert context.session == "s"
        guard.check(says("a"))
        assert guard.run(says("b")).labels == {"met a", "met b"}
        assert who(guard) == "ann"

    assert who(guard) == "nobody"
    assert guard.run(says("c")).labels == {"met c"}
    assert guard.run(says("c"), session="s").labels == {"met c"}
    assert guard.run(says("c"), session="s", subject={"id": "ann"}).labels == {"met a", "met b", "met c"}


@pytest.mark.spec("GRD-6")
def test_blocks_nest_and_an_inner_one_has_the_outer_one_s_subject(guard: Guard) -> None:
    with guard.session("outer", subject={"id": "ann"}):
        with guard.session("inner"):
            assert who(guard) == "ann"
            with guard.session("other", subject={"id": "bob"}):
                assert who(guard) == "bob"
            guard.check(says("deep"))
        assert who(guard) == "ann"
        assert guard.run(says("x")).labels == {"met x"}
        assert guard.run(says("x"), session="inner").labels == {"met deep", "met x"}


@pytest.mark.spec("GRD-6")
def test_what_is_given_at_a_call_wins_and_the_rest_comes_from_the_block(guard: Guard) -> None:
    facts = Context(labels={"own"}, environment="test")

    with guard.session("s", subject={"id": "ann"}, context=Context(labels={"block"})):
        guard.check(says("a"))
        outcome = guard.run(says("b"), context=facts)
        assert outcome.labels == {"own", "block", "met a", "met b"}
        assert who(guard, context=facts) == "ann"
        assert who(guard, subject={"id": "bob"}) == "bob"
        assert who(guard, context=Context(subject={"id": "cleo"})) == "cleo"  # type: ignore[arg-type]
        assert guard.run(says("b"), context=Context(session="t")).labels == {"block", "met b"}


@pytest.mark.spec("GRD-6")
def test_two_guards_do_not_see_each_other_s_blocks(guard: Guard) -> None:
    other = Guard(guard._pipeline.policies)

    with guard.session("s", subject={"id": "ann"}), other.session("t", subject={"id": "bob"}):
        assert (who(guard), who(other)) == ("ann", "bob")
    with guard.session("s", subject={"id": "ann"}):
        assert who(other) == "nobody"


@pytest.mark.spec("GRD-6")
async def test_no_task_sees_another_one_s_session_and_children_inherit(guard: Guard) -> None:
    met: dict[str, list[object]] = {}

    async def child() -> object:
        await asyncio.sleep(0)
        return who(guard)

    async def turn(name: str) -> None:
        async with guard.session(name, subject={"id": name}):
            for _ in range(5):
                await asyncio.sleep(0)
                met.setdefault(name, []).append((await guard.adecide(says("who"))).reasons[0].detail["subject"])
            met[name] += await asyncio.gather(child(), asyncio.to_thread(who, guard))

    await asyncio.gather(*(turn(f"p{number}") for number in range(20)))

    assert met == {f"p{number}": [f"p{number}"] * 7 for number in range(20)}
    assert who(guard) == "nobody"


@pytest.mark.spec("GRD-6")
def test_no_thread_sees_another_one_s_session(guard: Guard) -> None:
    together = threading.Barrier(4)

    def turn(name: str) -> object:
        with guard.session(name, subject={"id": name}):
            together.wait(timeout=30)
            return who(guard)

    with ThreadPoolExecutor(4) as pool, guard.session("outer", subject={"id": "outer"}):
        assert list(pool.map(turn, "abcd")) == list("abcd")
        assert pool.submit(who, guard).result() == "nobody"


@pytest.mark.spec("GRD-6")
def test_a_block_ends_with_an_error_and_is_entered_once(guard: Guard) -> None:
    block = guard.session("s", subject={"id": "ann"})

    with pytest.raises(KeyError), block:
        raise KeyError

    assert who(guard) == "nobody"
    with pytest.raises(RuntimeError), block:
        pass
    block.__exit__(None)


@pytest.mark.spec("GRD-6")
def test_leaving_a_block_that_was_never_entered_changes_nothing(guard: Guard) -> None:
    with guard.session("s", subject={"id": "ann"}):
        guard.session("t").__exit__(None)
        assert who(guard) == "ann"


@pytest.mark.spec("GRD-6")
def test_guarded_functions_belong_to_the_block_in_which_they_run(guard: Guard) -> None:
    seen = []

    @guard.tool
    def act() -> str:
        seen.append(guard.run(says("inside")).labels)
        return "x"

    with guard.session("s", subject={"id": "ann"}):
        guard.check(says("before"))
        act()

    assert seen == [{"met before", "met inside"}]
