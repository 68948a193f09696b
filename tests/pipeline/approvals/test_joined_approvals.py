"""An approval of a part is none of the text that it makes with others, and one of a result is bound to all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.approvals.test_needs import BOB, HERE, KEY, RULES, asked_once, call, goes, suspended
from tests.pipeline.conftest import write_rules

from cmf import Message, Response, TextPart, ToolResultPart
from cmf.message.message import ImagePart, PromptResultPart, ThinkingPart
from cmf.message.request import Choice
from pipeline import Config, Pipeline
from pipeline.approvals.queue import Approvals
from pipeline.decisions.decision import Action
from pipeline.decisions.errors import ApprovalError
from pipeline.decisions.stage import Ask, Stage
from pipeline.sessions.base import MemorySessions, SessionStore

Make = Callable[..., Pipeline]


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rules(tmp_path_factory.mktemp("policies"), {"word": RULES["word"]})


@pytest.fixture
def make(policies: Path) -> Iterator[Make]:
    made: list[Pipeline] = []

    def pipeline(store: SessionStore, *stages: Stage) -> Pipeline:
        config = Config(seal_key=KEY, timeout_seconds=30.0)
        made.append(Pipeline(stages, policies=policies, config=config, sessions=store))
        return made[-1]

    yield pipeline
    for one in made:
        one.close()


def texts(*said: str) -> tuple[TextPart, ...]:
    return tuple(TextPart(text=text) for text in said)


def thoughts(*said: str) -> tuple[ThinkingPart, ...]:
    return tuple(ThinkingPart(text=text) for text in said)


def message_of(role: Any, parts: Sequence[Any]) -> Message:
    return Message(role=role, content=parts)


def result_of(role: Any, parts: Sequence[Any]) -> Message:
    return Message(role=role, content=[ToolResultPart(tool_name="look", content=tuple(parts))])


def prompt_of(role: Any, parts: Sequence[Any]) -> Message:
    return Message(
        role="tool", content=[PromptResultPart(prompt_name="p", messages=(Message(role=role, content=parts),))]
    )


def approve_all(pipeline: Pipeline, store: SessionStore, value: Any) -> None:
    for waiting in suspended(pipeline.run(value, HERE)):
        Approvals(store).approve(waiting, BOB)


@pytest.mark.spec("EFF-12")
@pytest.mark.parametrize(
    ("role", "made", "held"),
    [
        ("user", texts, message_of),
        ("system", texts, message_of),
        ("developer", texts, message_of),
        ("assistant", texts, message_of),
        ("assistant", thoughts, message_of),
        ("tool", texts, result_of),
        ("user", texts, prompt_of),
    ],
)
@pytest.mark.parametrize(
    ("approved", "sent"),
    [
        (["launch 10"], ["launch 10", "00 rockets"]),
        (["launch 10"], ["do not ", "launch 10"]),
        (["launch 10", "00 rockets"], ["launch 10", "00 rockets", "00 more"]),
        (["launch 10", "00 rockets"], ["00 rockets", "launch 10"]),
        (["launch 1000 rockets"], ["launch 10", "00 rockets"]),
        (["launch 10", "00 rockets"], ["launch 10", "00 rockets", "launch 10"]),
        (["launch 10", "00 rockets"], ["launch 10", "\u0660\u0660 rockets"]),
    ],
)
def test_approved_texts_let_no_other_joined_text_out(
    make: Make, role: Any, made: Any, held: Any, approved: list[str], sent: list[str]
) -> None:
    store = MemorySessions()
    pipeline = make(store)
    approve_all(pipeline, store, held(role, made(*approved)))

    suspended(pipeline.run(held(role, made(*sent)), HERE))

    goes(pipeline.run(held(role, made(*approved)), HERE))


@pytest.mark.spec("EFF-12")
def test_a_part_and_its_joined_text_are_approved_each(make: Make) -> None:
    store = MemorySessions()
    pipeline = make(store)
    both = message_of("user", texts("launch 10", "", "00 rockets"))

    part, whole = suspended(pipeline.run(both, HERE))
    Approvals(store).approve(part, BOB)
    assert asked_once(pipeline.run(both, HERE)) == whole
    Approvals(store).approve(whole, BOB)

    about = [ref.path for ref in goes(pipeline.run(both, HERE)).decision.approvals]
    assert about == ["content[0]", "content.text"]
    assert len(suspended(pipeline.run(both, HERE))) == 2


@pytest.mark.spec("EFF-12")
def test_a_denied_joined_text_stays_denied_though_its_parts_were_approved(make: Make) -> None:
    store = MemorySessions()
    pipeline = make(store)
    both = message_of("user", texts("launch 10", "00 rockets"))
    part, whole = suspended(pipeline.run(both, HERE))
    Approvals(store).approve(part, BOB)

    Approvals(store).deny(whole, BOB)

    assert pipeline.run(both, HERE).decision.action is Action.REFUSE


@pytest.mark.spec("EFF-12")
def test_a_suspended_reply_is_released_by_the_approvals_of_its_parts_and_its_whole(make: Make) -> None:
    store = MemorySessions()
    pipeline = make(store)
    reply = Response(choices=[Choice(message=message_of("assistant", texts("launch 10", "00 rockets")))])
    part, whole = suspended(pipeline.run(reply, HERE))
    Approvals(store).approve(part, BOB)

    with pytest.raises(ApprovalError):
        pipeline.release(whole, HERE)
    Approvals(store).approve(whole, BOB)

    released = goes(pipeline.release(whole, HERE)).response
    assert released is not None
    assert released.choices[0].message.content == texts("launch 10", "00 rockets")


IMAGES = [ImagePart(type="base64", data=data, media_type="image/png") for data in ("iVBORw0KGgo=", "iVBORw0KGgA=")]


@pytest.mark.spec("APR-3")
@pytest.mark.parametrize(
    "other", [[*texts("launch"), IMAGES[1]], texts("launch"), [IMAGES[0], *texts("launch"), IMAGES[0]]]
)
def test_an_approved_result_lets_none_with_other_parts_out(make: Make, other: Sequence[Any]) -> None:
    store = MemorySessions()
    pipeline = make(store)
    approved = result_of("tool", [*texts("launch"), IMAGES[0]])
    approve_all(pipeline, store, approved)

    suspended(pipeline.run(result_of("tool", other), HERE))

    goes(pipeline.run(approved, HERE))


@pytest.mark.spec("APR-3")
def test_a_stage_s_approval_of_a_whole_number_is_none_of_a_decimal(make: Make) -> None:
    store = MemorySessions()
    stage = Stage(name="look", call=lambda value, context: Ask(code="stage.ask", reason="Look at it."))
    pipeline = make(store, stage)
    approve_all(pipeline, store, Message(role="assistant", content=[call(7, "other")]))

    suspended(pipeline.run(Message(role="assistant", content=[call(7.0, "other")]), HERE))

    goes(pipeline.run(Message(role="assistant", content=[call(7, "other")]), HERE))
