"""The conformance matrix: one policy, one outcome, in every dialect. Spec: docs/spec/gateway.md [GW-190] ff."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.pipeline.gateway import matrix, matrix_bodies
from tests.pipeline.gateway.matrix import CELLS, EFFECTS, MODES, Cell, expected
from tests.pipeline.gateway.matrix_bodies import CANNOT, DIALECTS, ROWS, Row

from cmf.adapters import get
from cmf.enums import Role, StopReason
from cmf.errors import CmfError
from cmf.json.frozen import frozen_mapping
from cmf.message.message import ImagePart, Message, OpaquePart, Part, TextPart
from cmf.message.request import Choice, Request, Response
from cmf.views.iterate import iter_views
from pipeline.gateway.http import dialects, endpoints
from pipeline.gateway.http.endpoints import Operation

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Cell, str]:
    return matrix.outcomes(tmp_path_factory.mktemp("matrix"))


@pytest.mark.spec("GW-190")
@pytest.mark.parametrize(
    ("dialect", "row"),
    [(dialect, row) for dialect in DIALECTS for row in ROWS if (dialect, *row) not in CANNOT],
    ids=lambda one: one if isinstance(one, str) else "-".join(one),
)
def test_what_policy_says_of_content_becomes_of_it(found: Mapping[Cell, str], dialect: str, row: Row) -> None:
    asked = [(mode, effect) for mode in matrix.modes_of(dialect, row) for effect in EFFECTS]

    became = {(mode, effect): found[Cell(dialect, row, mode, effect)] for mode, effect in asked}

    assert became == {(mode, effect): expected(row, effect, mode) for mode, effect in asked}


@pytest.mark.spec("GW-191")
def test_each_dialect_that_is_served_has_its_cells() -> None:
    answering = {one.dialect.name for one in endpoints.PATHS.values() if one.operation is Operation.ANSWER}
    gemini = endpoints.endpoint_of("/v1beta/models/m:generateContent", [], {})
    assert gemini is not None

    assert set(DIALECTS) == set(dialects.DIALECTS) == answering | {gemini.dialect.name}
    assert {cell.dialect for cell in CELLS} == set(DIALECTS)
    said = [(name, row) for name in DIALECTS for row in ROWS if (name, *row) not in CANNOT]
    assert {one for name, row in said for one in matrix.modes_of(name, row)} == set(MODES)
    assert len(CELLS) == sum(len(matrix.modes_of(name, row)) for name, row in said) * len(EFFECTS)


@pytest.mark.spec("GW-191")
def test_each_path_that_answers_is_one_that_the_matrix_asks() -> None:
    asked = {
        path.partition("?")[0]
        for dialect in DIALECTS
        for stream in (False, True)
        for path, _ in [matrix_bodies.request(dialect, "text", "hi", model="m", stream=stream)]
    }

    paths = {one: {path for path, found in endpoints.PATHS.items() if found.operation is one} for one in Operation}
    assert paths[Operation.ANSWER] <= asked
    assert paths[Operation.CHECK] == {endpoints.CHECK_PATH}  # mode `check`
    assert paths[Operation.LITELLM] == {endpoints.LITELLM_PATH}  # mode `litellm`
    assert paths[Operation.ENVOY] == set()  # mode `envoy`: the paths of answers, behind a prefix
    assert set(Operation) == {
        Operation.ANSWER,
        Operation.CHECK,
        Operation.COUNT,
        Operation.ENVOY,
        Operation.LITELLM,
        Operation.MODEL,
        Operation.MODELS,
    }
    assert {f"/v1beta/models/m:{method}" for method in ("generateContent", "streamGenerateContent")} <= asked


@pytest.mark.spec("GW-192")
@pytest.mark.parametrize(("dialect", "kind", "way"), CANNOT)
def test_kinds_listed_as_not_expressible_in_a_dialect_cannot_be_written_in_it(
    dialect: str, kind: str, way: Any
) -> None:
    """Said by the adapter: a part of that kind, as this dialect's own, is refused or does not come back."""
    probes: dict[str, Part] = {
        "media": ImagePart(type="base64", data=matrix_bodies.picture(80), media_type="image/png"),
        "opaque": OpaquePart(provider=dialect, type="zebra", value=frozen_mapping({"type": "zebra", "zebra": "z"})),
    }
    said, adapter = (TextPart(text="ok"), probes[kind]), get(dialect)
    try:
        if way == "reply":
            choice = Choice(message=Message(role=Role.ASSISTANT, content=said), stop_reason=StopReason.END)
            back: Any = adapter.from_wire_response(adapter.to_wire_response(Response(choices=(choice,), model="m")))
        else:
            asks = Request(messages=(Message(role=Role.USER, content=said),), model="m")
            back = adapter.from_wire_request(adapter.to_wire(asks), model="m")
    except CmfError:
        return

    assert not _of_kind(back, kind), "it has words for it: take the excuse away, and write its body"


def _of_kind(whole: Any, kind: str) -> list[str]:
    kinds = {"media": ("image", "document", "audio", "video")}.get(kind, (kind,))
    return [view.path for view in iter_views(whole) if str(view.kind) in kinds]


@pytest.mark.spec("GW-193")
def test_the_printed_table_says_what_was_found(found: Mapping[Cell, str]) -> None:
    worse = {**found, CELLS[0]: "goes through"}

    assert f"{len(CELLS)} of {len(CELLS)} cells" in matrix.table(found)
    assert f"{len(CELLS) - 1} of {len(CELLS)} cells" in matrix.table(worse)
    assert "403 matrix.deny / goes through" in matrix.table(worse)
    assert all(why in matrix.table(found) for why in CANNOT.values())
