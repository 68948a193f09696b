"""Bodies of checks, read strictly: an error names its JSON path. Spec: gateway.md [GW-231]."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, TypeVar

import pydantic

from cmf.errors import CmfError
from pipeline.gateway.config.settings_base import Section
from pipeline.gateway.config.settings_errors import first_of, said_of
from pipeline.gateway.http.client_response import decision_headers
from pipeline.gateway.http.incoming import SESSION_HEADER
from pipeline.gateway.http.refusal import FINAL, Refusal, of_unreadable
from pipeline.run.outcome import Outcome

_Q = TypeVar("_Q", bound=Section)


def read_as(model: type[_Q], body: Any) -> _Q:
    """The body as `model`. Refusal 400, with the JSON path, if it does not fit."""
    try:
        return model.model_validate(body)
    except pydantic.ValidationError as error:
        raise _unfit(error, model, body) from None


def _unfit(error: pydantic.ValidationError, model: type[Section], body: Any) -> Refusal:
    findings = error.errors(include_url=False, include_input=False)
    finding = next((other for other in findings if other["type"] == "extra_forbidden"), None) or first_of(findings)
    steps = finding["loc"]
    name = str(steps[0]) if steps else ""
    path = f"$.{name}" if name.isidentifier() and len(name) <= 64 else "$"
    if finding["type"] == "extra_forbidden":
        near = get_close_matches(name, model.model_fields, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(model.model_fields)}"
        if name == "session":
            hint = f"the header {SESSION_HEADER} names it"
        return wrong(path, "this key is not known", hint)
    value = body.get(name) if isinstance(body, dict) else body
    return wrong(path, *said_of(finding, steps, value))


def wrong(path: str, why: str, hint: str) -> Refusal:
    """The refusal for an error at a JSON path of the body."""
    return Refusal(400, "check.invalid", f"{why[:1].upper()}{why[1:]} at {path}: {hint}", headers=FINAL)


def would_change(outcome: Outcome, why: str) -> Refusal:
    """The refusal where policy allows a value only with changes that the caller would not make; `why` says so."""
    headers = decision_headers(outcome.decision) | FINAL
    return Refusal(403, "check.would-change", f"{why} (decision {outcome.decision.id})", headers=headers)


@contextmanager
def placed(place: str) -> Iterator[None]:
    """A block that reads what is at a JSON path; what cannot be read becomes a Refusal that names the path."""
    try:
        yield
    except CmfError as error:
        raise of_unreadable(error.at(place)) from None
