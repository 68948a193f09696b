"""URIs that no view can have, held against the views of any traffic."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.cmf.strategies import values
from tests.pipeline.authoring.test_unused import DENY, HEAD, LIB, PLACE, Write, found, write

from cmf.enums import ViewKind
from cmf.message.message import Message
from cmf.message.request import Request, Response
from cmf.views.iterate import iter_views
from pipeline.policy.setting_schema import WITHOUT_URI, uri_hint

__all__ = ["write"]  # a fixture

MATCHES = f"{LIB}\nuri_matches(uri, pattern) if uri == pattern\n"


@pytest.mark.spec("POL-37")
@given(value=values)
def test_no_uri_that_a_view_has_is_found(value: Message | Request | Response) -> None:
    for view in iter_views(value):
        assert view.uri is None or (view.kind not in WITHOUT_URI and uri_hint(view.uri, {view.kind}) is None), view.kind


@pytest.mark.spec("POL-37")
@pytest.mark.parametrize(
    ("uri", "kinds", "hint"),
    [
        ("tool://send", None, "write tool://_/send, or another namespace for `_` (none)"),
        ("tool://mail/Send Mail", {ViewKind.TOOL_CALL}, "write tool://mail/Send%20Mail"),
        ("tool://mail/%73end", None, "write tool://mail/send"),
        ("tool://a/b/c", None, "it is tool://NAMESPACE/NAME"),
        ("tool_result://a/b", None, "it is tool_result://NAME"),
        ("send", {ViewKind.TOOL_CALL}, "for the rule's kinds it is tool://NAMESPACE/NAME"),
        (
            "https://a",
            {ViewKind.TOOL_CALL, ViewKind.REQUEST, ViewKind.TEXT},
            "for the rule's kinds it is llm://PROVIDER/MODEL or tool://NAMESPACE/NAME",
        ),
        ("send", None, None),
        ("https://a", {ViewKind.TOOL_CALL, ViewKind.RESOURCE}, None),
        ("https://a", {ViewKind.TEXT}, None),
        ("llm://openai/gpt-5", {ViewKind.REQUEST}, None),
    ],
)
def test_a_uri_that_no_view_has_is_found_with_what_to_write(
    uri: str, kinds: set[ViewKind] | None, hint: str | None
) -> None:
    assert uri_hint(uri, kinds) == hint


@pytest.mark.spec("POL-37")
@pytest.mark.parametrize(
    ("pattern", "is_found"),
    [
        ("tool://send_*", True),
        ("tool://*", True),
        ("tool_result://x", True),
        ("tool://*/send_*", False),
        ("tool://**", False),
        ("**", False),
        ("*://x/y", False),
    ],
)
def test_a_pattern_that_no_uri_matches_is_found(write: Write, pattern: str, is_found: bool) -> None:
    text = HEAD.format(capabilities="").replace("[text, tool_call]", "[tool_call]")
    rule = f"{text}import data.cmf.lib\n\n" + DENY.format(f'lib.uri_matches(input.uri, "{pattern}")')

    listed = found(write, "", extra={PLACE: rule, "cmf/lib/lib.rego": MATCHES})

    assert [said for code, _, said in listed if code == "check.wrong-value"] == (
        [f'input.uri never matches "{pattern}"'] if is_found else []
    )


@pytest.mark.spec("POL-37")
@pytest.mark.parametrize(
    ("condition", "codes"),
    [
        ('input.uri == "tool://send"', ["check.wrong-value"]),
        ('input.uri in {"tool://_/send", "tool://send"}', ["check.wrong-value"]),
        ('input.uri == "tool://_/send"', []),
        ('input.uri >= "tool://send"', []),
        ('lib.uri_matches(input.name, "tool://send")', []),
        ("lib.uri_matches(input.uri, input.name)", []),
    ],
)
def test_only_what_is_compared_with_the_uri_is_looked_at(write: Write, condition: str, codes: list[str]) -> None:
    text = HEAD.format(capabilities="").replace("[text, tool_call]", "[tool_call]")
    rule = f"{text}import data.cmf.lib\n\n" + DENY.format(condition)

    listed = found(write, "", extra={PLACE: rule, "cmf/lib/lib.rego": MATCHES})

    assert [code for code, _, _ in listed if code == "check.wrong-value"] == codes


@pytest.mark.spec("POL-37")
def test_a_text_has_no_uri(write: Write) -> None:
    text = HEAD.format(capabilities="").replace("[text, tool_call]", "[text, thinking]") + DENY.format("input.uri")

    assert [code for code, _, _ in found(write, "", extra={PLACE: text})] == ["check.never-there"]
