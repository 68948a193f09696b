"""What the host is told, by name."""

from __future__ import annotations

from typing import get_args

import pytest

from pipeline.decisions.events import Event, RouteDecided, RoutingConstraintFailure, ToolInputInvalid


@pytest.mark.spec("EVT-1")
def test_every_event_has_a_name_of_its_own_and_those_of_the_seeds_theirs() -> None:
    names = [event.type for event in get_args(Event)]

    assert len(set(names)) == len(names) == len(get_args(Event))
    assert ToolInputInvalid.type == "tool_input_invalid"
    assert RoutingConstraintFailure.type == "routing_constraint_failure"
    assert RouteDecided(session=None, model="m:m", policy="RULE", reason="x").type == "route.decided"
