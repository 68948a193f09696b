"""The conformance matrix of MCP: the same policy, the same outcome, over every transport. Spec: gateway.md [GW-194]."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.pipeline.gateway import matrix_mcp, matrix_mcp_bodies
from tests.pipeline.gateway.matrix import EFFECTS
from tests.pipeline.gateway.matrix_mcp import CELLS, MODES, PATH, McpCell, expected, modes_of
from tests.pipeline.gateway.matrix_mcp_bodies import ROWS, McpRow

from cmf.adapters.mcp.calls import CALLS
from pipeline.gateway import mcp
from pipeline.mcp import stdio

SPEC = Path(__file__).parents[3] / "docs" / "spec" / "adapters" / "mcp.md"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[McpCell, str]:
    return matrix_mcp.outcomes(tmp_path_factory.mktemp("matrix"))


@pytest.mark.spec("GW-194")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_what_policy_says_of_content_in_mcp_becomes_of_it(found: Mapping[McpCell, str], row: McpRow) -> None:
    asked = [(mode, effect) for mode in modes_of(row) for effect in EFFECTS]

    became = {(mode, effect): found[McpCell(row, mode, effect)] for mode, effect in asked}

    assert became == {(mode, effect): expected(row, effect) for mode, effect in asked}


@pytest.mark.spec("GW-195")
def test_each_method_whose_params_are_read_is_asked() -> None:
    asked = {row.method for row in ROWS if row.way in ("call", "question", "notice")}

    assert asked >= {method for method, row in CALLS.items() if row is not None}


@pytest.mark.spec("GW-195")
def test_each_kind_of_result_that_is_read_is_given() -> None:
    told = SPEC.read_text(encoding="utf-8").partition("**[MCP-6]**")[2].partition("**[MCP-7]**")[0]
    kinds = [set(re.findall(r"`(\w+)`", line.split("|")[1])) for line in told.splitlines() if line.startswith("| `")]
    given = [matrix_mcp_bodies.result(row, "m", 0) for row in ROWS if row.way == "result"]
    given += [matrix_mcp_bodies.answer(row, "m") for row in ROWS if row.way == "answer"]

    assert len(kinds) == 8
    assert [names for names in kinds if not any(names & set(one) for one in given)] == []


@pytest.mark.spec("GW-195")
def test_each_transport_that_is_served_has_its_cells() -> None:
    servers = {made for made in vars(stdio).values() if inspect.isclass(made) and hasattr(made, "received")}

    assert servers == {stdio.Process, stdio.UrlServer}  # modes `stdio` and `url`
    assert PATH.startswith(mcp.PATH)
    assert {cell.mode for cell in CELLS} == set(MODES)
    assert len(CELLS) == sum(len(modes_of(row)) for row in ROWS) * len(EFFECTS)


@pytest.mark.spec("GW-194")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_cell_says_its_content_once_where_it_should(row: McpRow) -> None:
    """Else what is looked for would be there, or gone, whatever policy did."""
    said = {"call": matrix_mcp_bodies.call, "result": matrix_mcp_bodies.result}
    if row.way in said:
        holder, others = said.pop(row.way)(row, "marker", 0), [one(row, "marker", 0) for one in said.values()]
    else:
        holder = (
            matrix_mcp_bodies.answer(row, "marker") if row.way == "answer" else matrix_mcp_bodies.said(row, "marker", 0)
        )
        others = [one(row, "marker", 0) for one in said.values()]

    assert json.dumps(holder).count("marker") == 1
    assert "marker" not in json.dumps(others)


@pytest.mark.spec("GW-193")
def test_the_printed_table_of_mcp_says_what_was_found(found: Mapping[McpCell, str]) -> None:
    worse = {**found, CELLS[0]: "goes through"}

    assert f"{len(CELLS)} of {len(CELLS)} cells" in matrix_mcp.table(found)
    assert f"{len(CELLS) - 1} of {len(CELLS)} cells" in matrix_mcp.table(worse)
    assert "goes through / refused matrix.deny" in matrix_mcp.table(worse)
