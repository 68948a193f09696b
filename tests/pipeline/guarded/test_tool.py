"""Functions as tools: judged before the call and after it, whatever kind of function it is."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import datetime
import inspect
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.house.tree import ROOT
from tests.pipeline.conftest import write_rules
from tests.pipeline.tool_rules import TOOL_RULES

from cmf import ImagePart, Message, TextPart, ToolResultPart
from cmf.errors import DecodeError
from cmf.json.value import replace
from pipeline import Context, Denied, Guard, as_stage
from pipeline.decisions.errors import CallError
from pipeline.decisions.events import CallFailed
from pipeline.sessions.base import MemorySessions


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    return Guard(write_rules(tmp_path_factory.mktemp("rules"), TOOL_RULES))


class Address(BaseModel):
    street: str
    number: int


@dataclasses.dataclass
class Account:
    owner: str
    opened: datetime.date


# -- what passes -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("GRD-7")
async def test_every_kind_of_function_gets_the_arguments_as_policy_left_them(guard: Guard) -> None:
    @guard.tool
    def plain(to: str) -> str:
        return f"to {to}"

    @guard.tool
    async def awaited(to: str) -> str:
        return f"to {to}"

    @guard.tool
    def yields(to: str) -> Iterator[str]:
        yield from ("to ", to)

    @guard.tool
    async def yields_awaited(to: str) -> AsyncIterator[str]:
        yield "to "
        yield to

    assert plain("old") == "to ann"
    assert await awaited("old") == "to ann"
    assert list(yields("old")) == ["to ", "ann"]
    assert [item async for item in yields_awaited("old")] == ["to ", "ann"]


@pytest.mark.spec("GRD-8")
async def test_nothing_that_a_generator_yields_comes_out_before_all_of_it_was_judged(guard: Guard) -> None:
    ended = []

    @guard.tool
    def bad() -> Iterator[str]:
        try:
            yield "all well so far"
            yield "for"
            yield "bidden"
        finally:
            ended.append("bad")

    @guard.tool
    async def masked() -> AsyncIterator[str]:
        yield "a sec"
        yield "ret b"

    came = []
    with pytest.raises(Denied):
        came.extend(bad())

    assert (came, ended) == ([], ["bad"])
    assert [item async for item in masked()] == ["a [MASKED] b"]


@pytest.mark.spec("GRD-8")
def test_what_a_generator_returns_is_judged_with_what_it_yields(guard: Guard) -> None:
    def outer(call: Callable[[], Generator[Any, None, Any]]) -> Iterator[Any]:
        yield (yield from call())

    @guard.tool
    def fine() -> Generator[int, None, str]:
        yield 1
        yield 2
        return "done"

    @guard.tool
    def bad() -> Generator[int, None, str]:
        yield 1
        return "forbidden"

    @guard.tool
    def typed() -> Iterator[Address]:
        yield Address(street="Main", number=1)

    @guard.tool
    def untyped():  # type: ignore[no-untyped-def]
        yield Address(street="Main", number=1)

    assert list(outer(fine)) == [1, 2, "done"]
    assert list(typed()) == [Address(street="Main", number=1)]
    assert list(untyped()) == [{"street": "Main", "number": 1}]
    with pytest.raises(Denied):
        list(outer(bad))


@pytest.mark.spec("GRD-9")
@pytest.mark.parametrize(
    "value",
    [
        None, True, 7, 1.5, "text", [1, "a", None], {"a": [{"b": 1}]}, [],
        Address(street="Main", number=3), Account("ann", datetime.date(2020, 1, 2)), ("a", 1), {"x"},
        datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC), TextPart(text="x"), [TextPart(text="x")],
        (TextPart(text="x"), ImagePart(type="base64", data="aGVsbG8=", media_type="image/png")),
        [{"content_type": "text", "text": "x"}], [{"content_type": "own", "n": 1}], b"bytes",
    ],
    ids=repr,
)  # fmt: skip
def test_what_policy_left_comes_back_in_its_own_type(guard: Guard, value: Any) -> None:
    @guard.tool
    def give():  # type: ignore[no-untyped-def]
        return value

    @guard.tool
    def take(it: Any) -> bool:
        return bool(it == value and type(it) is type(value))

    given = give()

    assert (given, type(given)) == (value, type(value))
    if not (isinstance(value, list | tuple) and value and isinstance(value[0], TextPart)):
        assert take(value) is True


@pytest.mark.spec("GRD-9")
def test_what_came_is_edited_in_its_own_type_too(guard: Guard) -> None:
    @guard.tool
    def model() -> Address:
        return Address(street="forbidden"[:3] + " street", number=1)

    @guard.tool
    def parts() -> Sequence[TextPart]:
        return [TextPart(text="a secret b")]

    @guard.tool
    def part() -> TextPart:
        return TextPart(text="a secret b")

    @guard.tool
    def text() -> Annotated[str, ["an annotation that cannot be hashed"]]:
        return "a secret b"

    @guard.tool
    def pair() -> Annotated[tuple[str, int], ["an annotation that cannot be hashed"]]:
        return "x", 1

    assert model() == Address(street="for street", number=1)
    assert parts() == [TextPart(text="a [MASKED] b")]
    assert part() == TextPart(text="a [MASKED] b")
    assert text() == "a [MASKED] b"
    assert pair() == ("x", 1)


def test_a_part_that_a_stage_turned_into_several_is_refused(lenient: Path) -> None:
    def double(message: Message, _: Context) -> Message | None:
        part = message.content[0]
        if not isinstance(part, ToolResultPart):
            return None
        return message.model_copy(update={"content": (replace(part, content=(*part.content, *part.content)),)})

    guard = Guard(lenient, stages=[as_stage("double", mode="transform")(double)])

    @guard.tool
    def part() -> TextPart:
        return TextPart(text="x")

    with pytest.raises(CallError):
        part()


@pytest.mark.spec("GRD-9")
def test_changes_to_arguments_that_a_tool_kept_reach_neither_caller_nor_result(guard: Guard) -> None:
    kept: list[dict[str, Any]] = []

    @guard.tool
    def keeps(it: dict[str, Any]) -> dict[str, Any]:
        kept.append(it)
        return it

    given = {"a": [1]}
    got = keeps(given)
    kept[0]["a"].append("forbidden")

    assert (given, got) == ({"a": [1]}, {"a": [1]})


@pytest.mark.spec("GRD-7")
@given(
    first=st.text(st.characters(exclude_categories=["Cs"])),
    rest=st.lists(st.integers()),
    more=st.dictionaries(st.from_regex(r"m_[a-z]{1,5}", fullmatch=True), st.floats(allow_nan=False) | st.none()),
)
def test_arguments_reach_the_function_as_python_binds_them(
    guard: Guard, first: str, rest: list[int], more: dict[str, Any]
) -> None:
    def function(first: str, /, *rest: int, flag: bool = False, **more: Any) -> list[Any]:
        return [first, list(rest), flag, more]

    allowed = first not in {"forbidden", "secret"}
    infinite = any(value in (float("inf"), float("-inf")) for value in more.values())

    if allowed and not infinite:
        assert guard.tool(schema={})(function)(first, *rest, **more) == function(first, *rest, **more)


def test_private_parameters_are_passed_to_the_function_and_not_shown_to_policy(guard: Guard) -> None:
    class Desk:
        def __init__(self) -> None:
            self.sent: list[str] = []

        @guard.tool(name="desk_send", private=("self", "door", "more"))
        def send(self, to: str, door: object, **more: object) -> str:
            assert isinstance(door, Path)
            assert more == {"key": door}
            self.sent.append(to)
            return to

    desk = Desk()

    assert desk.send("old", Path("/"), key=Path("/")) == "ann"
    assert desk.sent == ["ann"]
    definition = next(tool for tool in guard.tools if tool.name == "desk_send")
    assert definition.input_schema is not None
    assert list(definition.input_schema["properties"]) == ["to"]


def test_wrong_arguments_are_python_s_own_error(guard: Guard) -> None:
    @guard.tool
    def send(to: str) -> None:
        raise AssertionError("called")

    with pytest.raises(TypeError, match="missing a required argument"):
        send()  # type: ignore[call-arg]


def test_definitions_to_offer_a_model_come_from_the_functions(lenient: Path) -> None:
    guard = Guard(lenient)

    @guard.tool(namespace="mail")
    def send_mail(to: str, copies: int = 1, note: str = None, *lines: str, **more: Any) -> None:  # type: ignore[assignment]  # noqa: RUF013
        """Send a mail.

        More that no model needs.
        """

    @guard.tool
    def broken(it: NoSuchType) -> None:  # type: ignore[name-defined]  # noqa: F821
        pass

    first, second = guard.tools
    schema = first.input_schema
    assert schema is not None
    assert (first.name, first.namespace, first.description) == ("send_mail", "mail", "Send a mail.")
    assert (schema["required"], schema["additionalProperties"]) == (["to"], True)
    assert schema["properties"]["note"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert schema["properties"]["lines"] == {"items": {"type": "string"}, "title": "Lines", "type": "array"}
    assert second.input_schema == {
        "additionalProperties": False, "properties": {"it": {"title": "It"}}, "required": ["it"], "type": "object",
    }  # fmt: skip
    assert second.description is None
    assert broken(1) is None


def test_a_function_that_is_defined_again_is_offered_once_as_it_is_now(lenient: Path) -> None:
    guard = Guard(lenient)

    @guard.tool(name="look")
    def look() -> str:
        """Before."""
        return "before"

    @guard.tool(name="look")
    def look_again() -> str:
        """After."""
        return "after"

    assert [(tool.name, tool.description) for tool in guard.tools] == [("look", "After.")]
    assert (look(), look_again()) == ("before", "after")


def test_a_method_without_private_self_fails_with_a_hint(lenient: Path) -> None:
    guard = Guard(lenient)

    class Desk:
        @guard.tool
        def open(self) -> str:
            return "open"

        @guard.tool(private=["self"])
        def close(self) -> str:
            return "closed"

    with pytest.raises(CallError, match=r"at \$\.arguments\.self; .* in `private=\[…\]`"):
        Desk().open()
    assert Desk().close() == "closed"


# -- failures of the function ------------------------------------------------------------------------------------------


@pytest.mark.spec("GRD-10")
@pytest.mark.parametrize("error", [KeyError("canary-77"), StopIteration("x"), KeyboardInterrupt(), SystemExit(3)])
def test_what_a_function_raises_passes_as_it_is_and_is_an_event(
    guard: Guard, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[object] = []
    unsubscribe = guard.events.subscribe(seen.append)

    @guard.tool
    def fails() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        fails()
    unsubscribe()

    assert caught.value is error
    assert seen == [CallFailed(called="tool://_/fails", error=type(error).__name__)]
    assert "canary" not in caplog.text


class _Odd(Exception):
    """An exception that takes two arguments, and says more than they do."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first, second)
        self.reply = second

    def __str__(self) -> str:
        return f"odd {self.reply}"


class _Failed(Exception):
    """An exception whose text has nothing of what it holds."""

    def __init__(self, **held: object) -> None:
        super().__init__("failed")
        vars(self).update(held)


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("forbidden")


class _Final(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError


def _raised(error: Exception, *notes: str, cause: Exception | None = None) -> Exception:
    for note in notes:
        error.add_note(note)
    error.__cause__ = cause
    return error


def _circle(text: str) -> Exception:
    first, second = ValueError("a"), LookupError(text)
    first.__context__, second.__cause__ = second, first
    return first


WITHHELD = "withheld: Not to be read"


@pytest.mark.spec("GRD-16")
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ValueError("forbidden"), WITHHELD),
        (KeyError("forbidden"), WITHHELD),
        (OSError(2, "forbidden", "file"), WITHHELD),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "forbidden"), WITHHELD),
        (_Odd("a", "forbidden"), WITHHELD),
        (_Odd("forbidden", "a"), WITHHELD),
        (subprocess.CalledProcessError(1, "a", stderr=b"forbidden"), WITHHELD),
        (_Failed(body={"error": ["forbidden"]}), WITHHELD),
        (_raised(ValueError("a"), "forbidden"), WITHHELD),
        (_raised(ValueError("a"), cause=KeyError("forbidden")), WITHHELD),
        (ExceptionGroup("several", [ValueError("forbidden")]), WITHHELD),
        (_circle("forbidden"), WITHHELD),
        (_Final("forbidden"), "Not to be read"),
        (ValueError("the secret is out"), "the [MASKED] is out"),
        (_Mute(), "could not be judged"),
        (ValueError("\ud800"), "could not be judged"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else "",
)
async def test_what_an_exception_says_reaches_nobody_unjudged(guard: Guard, error: Exception, says: str) -> None:
    @guard.tool
    def fails() -> None:
        raise error

    @guard.tool
    async def awaited() -> None:
        raise error

    @guard.tool
    def yields() -> Iterator[int]:
        yield 1
        raise error

    @guard.tool
    async def yields_later() -> AsyncIterator[int]:
        yield 1
        raise error

    async def called(call: Callable[[], Any]) -> None:
        answer = call()
        await answer

    for call in (fails, awaited, lambda: list(yields()), lambda: anext(aiter(yields_later()))):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - which type is told below
            await called(call)
        shown = caught.value

        told = "".join(traceback.format_exception(shown)) + repr(shown) + repr(shown.args) + repr(vars(shown))
        assert says in str(shown)
        assert "forbidden" not in told.replace(str(shown), "")
        assert "secret" not in told
        assert shown.__cause__ is None
        assert shown.__context__ is None
        assert isinstance(shown, CallError if type(error) in (_Final, ExceptionGroup) else type(error))
        assert type(error).__name__ in repr(shown)


@pytest.mark.spec("GRD-16")
@pytest.mark.parametrize(
    "error",
    [
        _raised(ValueError("a"), *(f"note {at:06d}" for at in range(20_000)), "forbidden"),
        ValueError(*(f"argument {at:06d}" for at in range(20_000)), "forbidden"),
    ],
    ids=["notes", "arguments"],
)
def test_an_exception_that_says_much_is_read_in_a_time_that_grows_with_it(guard: Guard, error: Exception) -> None:
    @guard.tool
    def fails() -> None:
        raise error

    start = time.process_time()
    with pytest.raises(ValueError, match=WITHHELD):
        fails()

    assert time.process_time() - start < 2  # its square took six seconds and more


@pytest.mark.spec("GRD-16")
def test_an_exception_of_a_class_made_for_it_can_be_pickled(guard: Guard) -> None:
    @guard.tool
    def fails() -> None:
        raise LookupError("a secret")

    with pytest.raises(LookupError) as caught:
        fails()
    again = pickle.loads(pickle.dumps(caught.value))

    assert isinstance(again, LookupError)
    assert str(again) == "a [MASKED]"


@pytest.mark.spec("GRD-16")
@pytest.mark.parametrize(
    "error",
    [LookupError(), _raised(ValueError("fine"), "a note"), CallError("forbidden"), DecodeError("forbidden")],
    ids=lambda one: type(one).__name__,
)
def test_an_exception_that_policy_leaves_is_raised_as_it_is(guard: Guard, error: Exception) -> None:
    error.__context__ = error.__cause__ = None

    @guard.tool
    def fails() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        fails()

    assert caught.value is error
    assert caught.value.__context__ is None


@pytest.mark.spec("GRD-10")
async def test_a_cancelled_tool_is_cancelled_and_a_generator_is_closed(guard: Guard) -> None:
    seen: list[object] = []
    closed = []
    waiting = asyncio.Event()
    unsubscribe = guard.events.subscribe(seen.append)

    @guard.tool
    async def hangs() -> None:
        waiting.set()
        await asyncio.Event().wait()

    @guard.tool
    async def hangs_yielding() -> AsyncIterator[int]:
        try:
            yield 1
            waiting.set()
            await asyncio.Event().wait()
        finally:
            closed.append(1)

    async def first() -> int:
        return await anext(aiter(hangs_yielding()))

    for call in (hangs, first):
        task = asyncio.ensure_future(call())
        await asyncio.wait_for(waiting.wait(), 10)
        waiting.clear()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    unsubscribe()

    assert [event.error for event in seen if isinstance(event, CallFailed)] == ["CancelledError", "CancelledError"]
    assert closed == [1]


@pytest.mark.spec("GRD-10")
def test_a_generator_that_raises_releases_nothing(guard: Guard) -> None:
    @guard.tool
    def fails() -> Iterator[int]:
        yield 1
        raise LookupError

    running = iter(fails())

    with pytest.raises(LookupError):
        next(running)


# -- sessions and counts -----------------------------------------------------------------------------------------------


@pytest.mark.spec("GRD-11")
def test_a_repeated_call_is_counted_again(lenient: Path) -> None:
    sessions = MemorySessions()
    guard = Guard(lenient, sessions=sessions)
    pay = guard.tool(name="pay")(_ignores)

    with guard.session("s", subject={"id": "ann"}) as context:
        pay("x")
        pay("x")

    assert sessions.read(context).counters == {"calls:tool://_/pay": 2}


@pytest.mark.spec("GRD-11")
def test_labels_that_a_call_brought_are_on_its_result_without_a_session_too(guard: Guard) -> None:
    send = guard.tool(name="send")(_ignores)

    assert send("x") is None
    with pytest.raises(Denied) as caught:
        send("label")
    assert caught.value.code == "test.labelled"


def _ignores(to: str) -> None:
    return None


@pytest.mark.slow
@pytest.mark.spec("GRD-7")
def test_the_example_prints_what_it_says() -> None:
    file = ROOT / "examples" / "guarded_functions.py"
    promised = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""

    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True, timeout=120)

    assert done.stdout.splitlines() == [line.strip() for line in promised.split("Prints:")[1].strip().splitlines()]


# -- signature and types -----------------------------------------------------------------------------------------------


@pytest.mark.spec("GRD-7")
def test_a_guarded_function_looks_like_the_function_it_was(guard: Guard) -> None:
    def plain(to: str, n: int = 3) -> str:
        """Doc."""
        return to

    async def awaited() -> None: ...

    def yields() -> Iterator[int]:
        yield 1

    async def yields_awaited() -> AsyncIterator[int]:
        yield 1

    wrapped = guard.tool(plain)

    assert (wrapped.__name__, wrapped.__doc__, wrapped.__module__) == ("plain", "Doc.", __name__)
    assert inspect.signature(wrapped) == inspect.signature(plain)
    assert inspect.iscoroutinefunction(guard.tool(awaited))
    assert inspect.isgeneratorfunction(guard.tool(yields))
    assert inspect.isasyncgenfunction(guard.tool(yields_awaited))


TYPED = """
from typing import assert_type
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Annotated, Any
from pipeline import Guard

guard = Guard()

@guard.tool
def plain(to: str, n: int = 3) -> dict[str, int]:
    return {to: n}

@guard.tool(name="other", private=("n",))
async def awaited(to: str) -> bytes:
    return b""

@guard.tool()
def yields() -> Iterator[int]:
    yield 1

@guard.model(dialect="openai_chat")
def ask(body: dict[str, Any]) -> dict[str, Any]:
    return body

assert_type(plain("a", n=1), dict[str, int])
pending: Coroutine[Any, Any, bytes] = awaited("a")
assert_type(yields(), Iterator[int])
assert_type(ask({}), dict[str, Any])
with guard.session("s", subject={"id": "ann"}):
    plain(1)  # wrong
    pending = awaited()  # wrong
    ask(body=1)  # wrong
"""


@pytest.mark.slow
@pytest.mark.spec("GRD-7")
def test_the_type_checker_sees_the_function_s_own_types(tmp_path: Path) -> None:
    source = tmp_path / "typed.py"
    source.write_text(TYPED, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(source)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip

    wrong = [number for number, line in enumerate(TYPED.splitlines(), 1) if "# wrong" in line]
    assert [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line] == wrong, done.stdout
