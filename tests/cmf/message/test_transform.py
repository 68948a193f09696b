"""Every part of a value is reached once, under the path that its view has."""

from __future__ import annotations

from hypothesis import given
from tests.cmf.strategies import requests

from cmf.message.message import Part
from cmf.message.request import Request
from cmf.message.transform import map_parts
from cmf.views.iterate import iter_views


@given(requests)
def test_each_part_is_met_under_its_path_and_unchanged_values_are_shared(request: Request) -> None:
    met: list[str] = []

    def note(part: Part, path: str) -> Part:
        met.append(path)
        return part

    same = map_parts(request, note)

    assert same is request
    assert len(met) == len(set(met))
    assert set(met) <= {view.path for view in iter_views(request)}
