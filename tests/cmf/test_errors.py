"""What can go wrong, as one tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cmf.errors
from cmf.errors import CmfError, MissingExtraError, join_path, needs


def tree(cls: type[CmfError] = CmfError, depth: int = 0) -> Iterator[tuple[int, type[CmfError]]]:
    yield depth, cls
    for below in cls.__subclasses__():
        if below.__module__ == "cmf.errors":
            yield from tree(below, depth + 1)


LEAVES = [cls for _, cls in tree()]
CAUGHT_AS = {
    "DecodeError": ValueError,
    "MissingExtraError": ImportError,
    "ShapeError": ValueError,
    "UnknownRoleError": ValueError,
    "SchemaVersionError": ValueError,
    "ModelIdError": ValueError,
    "InvariantError": ValueError,
    "ToolSchemaError": ValueError,
    "ToolNameError": ValueError,
    "UnknownToolError": LookupError,
    "UnknownToolIdError": LookupError,
    "CapabilityError": PermissionError,
    "UnmappedPartError": TypeError,
    "ProjectionError": CmfError,
    "LossyProjectionError": CmfError,
    "UnsupportedError": CmfError,
    "UnknownFormatError": LookupError,
    "UnknownPriceError": LookupError,
    "MediaError": ValueError,
}


@pytest.mark.spec("MSG-12")
def test_every_error_of_the_package_is_in_the_tree_and_in_its_drawing() -> None:
    drawn = [
        ((len(match[1]) - 4) // 2, match[2])
        for line in str(cmf.errors.__doc__).splitlines()
        if (match := re.match(r"( {4,})(\w+Error)\s", line))
    ]

    assert [name for _, name in drawn] == [cls.__name__ for _, cls in tree()]
    assert drawn == [(depth, cls.__name__) for depth, cls in tree()]


@pytest.mark.spec("MSG-12")
@pytest.mark.parametrize("cls", LEAVES)
def test_every_error_has_a_code_of_its_own_and_says_where_and_what_to_do(cls: type[CmfError]) -> None:
    error = cls("what happened", path="$.a", hint="what to do")

    assert re.fullmatch(r"[a-z-]+\.[a-z-]+", cls.default_code)
    assert [other for other in LEAVES if other.default_code == cls.default_code] == [cls]
    assert str(error) == f"what happened at $.a; what to do [{cls.default_code}]"
    assert (error.message, error.path, error.hint, error.code) == (
        "what happened",
        "$.a",
        "what to do",
        cls.default_code,
    )
    assert cls("x", code="own.code").code == "own.code"
    assert str(cls("x")) == f"x [{cls.default_code}]"


@pytest.mark.spec("MSG-12")
def test_wherever_an_error_is_made_it_says_what_to_do() -> None:
    names = {cls.__name__ for cls in LEAVES}
    silent = [
        f"{path.name}:{node.lineno}"
        for path in Path(cmf.errors.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
        if not any(keyword.arg == "hint" for keyword in node.keywords)
    ]

    assert silent == []


@pytest.mark.parametrize("cls", [cls for cls in LEAVES if cls is not CmfError])
def test_every_error_is_caught_as_the_builtin_that_it_is_a_case_of(cls: type[CmfError]) -> None:
    assert issubclass(cls, CAUGHT_AS[cls.__name__])
    assert cls.__doc__


@pytest.mark.parametrize(
    ("prefix", "path", "joined"),
    [
        ("$.messages[0]", "content[1]", "$.messages[0].content[1]"),
        ("$.messages[0]", "$.content[1]", "$.messages[0].content[1]"),
        ("$.messages", "[0].role", "$.messages[0].role"),
        ("$.messages", "$[0]", "$.messages[0]"),
        ("$.messages", "$", "$.messages"),
        ("$.messages", "", "$.messages"),
        ("$", "$.role", "$.role"),
    ],
)
def test_paths_are_joined(prefix: str, path: str, joined: str) -> None:
    assert join_path(prefix, path) == joined
    assert CmfError("x", path=path).at(prefix).path == joined


@pytest.mark.spec("GRD-17")
def test_a_missing_package_is_one_sentence_that_says_what_to_install() -> None:
    with pytest.raises(MissingExtraError) as caught, needs("outer"), needs("inner"):
        raise ModuleNotFoundError(name="absent.part")

    assert str(caught.value) == (
        'the package absent is not installed; run: pip install "cmf-pipeline[outer]" [extra.missing]'
    )
    assert caught.value.name == "absent"


@pytest.mark.parametrize(
    "error",
    [
        ImportError("cannot import name 'x'", name="sqlalchemy"),  # installed, and broken or too old
        ModuleNotFoundError(name="pipeline.absent"),
        ModuleNotFoundError(),
    ],
)
def test_another_failure_of_an_import_is_no_missing_extra(error: ImportError) -> None:
    with pytest.raises(type(error)) as caught, needs("sql"):
        raise error

    assert caught.value is error
