"""What operators say about tools: read strictly, looked up without guessing."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.conftest import write_rules

from cmf import Message, ToolCallPart
from cmf.message.tools import ToolDefinition
from pipeline import Guard
from pipeline.decisions.errors import ConfigError
from pipeline.decisions.field_paths import Mark, compiled, escaped, leaves, names, shape
from pipeline.provenance.profile import AskedFor, Profile, Trust, profiles_schema
from pipeline.provenance.profiles import Entity, Profiles, annotated

ROOT = Path(__file__).resolve().parents[3]


def refused(source: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        Profiles.load(source)
    return caught.value


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("PRF-1")
@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"profiles": {"pay": {"controls": ["to"]}}}, "profiles.pay.controls"),
        ({"profiles": {"pay": {"control": ["to."]}}}, "profiles.pay.control[0]"),
        ({"profiles": {"pay": {"result": {"fields": {"a": "sure"}}}}}, "profiles.pay.result.fields.a.trust"),
        ({"profiles": {"pay": {"asked_for": {"patterns": ["("]}}}}, "profiles.pay.asked_for.patterns[0]"),
        ({"profiles": {"pay": {"actions": ["fly"]}}}, "profiles.pay.actions[0]"),
        ({"profiles": {"pay": {"data_policy": {"denied_actions": ["exprot"]}}}}, "profiles.pay.data_policy"),
        ({"profiles": {"pay": {"data_policy": {"allowed_actions": ["fly"]}}}}, "profiles.pay.data_policy"),
        ({"profiles": {}, "servers": {"s": {"trust": True}}}, "servers.s.trust"),
        ({"version": 2, "profiles": {}}, "version"),
        ({}, "profiles"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(document: dict[str, Any], path: str, tmp_path: Path) -> None:
    file = tmp_path / "profiles.json"
    file.write_text(json.dumps(document))

    error = refused(file)

    assert (error.code, error.path) == ("profile.invalid", f"{file}: {path}")


@pytest.mark.spec("PRF-1")
@pytest.mark.parametrize(
    ("name", "text"),
    [("a.yaml", "profiles: {a: {}, a: {}}"), ("a.json", '{"profiles":{},"profiles":{}}'), ("a.yaml", "a: [")],
)
def test_a_file_that_two_readers_could_take_differently_is_refused(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)

    assert refused(tmp_path / name).code == "profile.unreadable"


@pytest.mark.spec("PRF-1")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("profiles: {a: {result: {fields: {*.b: untrusted}}}}", 'put what begins with * or [ in quotes ("**.body")'),
        ("profiles:\n\ta: {}", "indent with spaces"),
        ("profiles: {a: {}, a: {}}", "name each key once"),
        ("profiles: {a: {asked_for: {verbs: [turn, on]}}}", "put it in quotes: YAML reads yes, no, on"),
        ("a: {sink: true}", "a file is `profiles: {<tool>: {…}}`"),
        ('profiles: {a: {result: {fields: {"/b": untrusted}}}}', "no JSON pointer: items[*].body"),
    ],
)
def test_common_mistakes_in_profiles_are_refused_with_what_to_do(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)

    error = str(refused(tmp_path / "a.yaml"))

    assert said in error
    assert "ProfileDocument" not in error


@pytest.mark.spec("PRF-1")
def test_a_missing_file_and_a_list_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("- 1")

    assert refused(tmp_path / "none.yaml").code == "profile.unreadable"
    assert refused(tmp_path / "a.yaml").code == "profile.invalid"


@pytest.mark.spec("PRF-1")
def test_two_keys_for_one_entity_are_refused() -> None:
    assert refused({"profiles": {"pay": {}, "tool://_/pay": {}}}).code == "profile.twice"


@pytest.mark.spec("PRF-1")
def test_a_function_that_answers_with_no_profile_is_refused() -> None:
    profiles = Profiles.load(lambda uri: {"sinks": True})

    with pytest.raises(ConfigError) as caught:
        profiles.find("pay")

    assert caught.value.code == "profile.invalid"


@pytest.mark.spec("PRF-1")
def test_a_function_that_fails_is_no_absence_of_a_profile() -> None:
    def answer(uri: str) -> None:
        raise TimeoutError("secret of the registry")

    with pytest.raises(ConfigError) as caught:
        Profiles.load(answer).find("pay")

    assert caught.value.code == "profile.unavailable"
    assert "secret" not in str(caught.value)


@pytest.mark.spec("PRF-1")
def test_later_sources_replace_whole_entries_and_functions_come_last(tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_text("profiles:\n  pay: {sink: true, intents: [old]}\n  read: {}\n")
    asked = []

    def answer(uri: str) -> dict[str, Any] | None:
        asked.append(uri)
        return {"sink": True} if uri == "tool://_/other" else None

    profiles = Profiles.load(tmp_path / "first.yaml", {"profiles": {"pay": {"irreversible": True}}}, answer)

    assert profiles.find("pay") == Profile(irreversible=True)
    assert profiles.find("other") == Profile(sink=True)
    assert profiles.find("nothing") is None
    assert asked == ["tool://_/other", "tool://_/nothing"]
    assert len(profiles) == 2


@pytest.mark.spec("PRF-8")
@pytest.mark.parametrize("file", sorted((ROOT / "examples" / "agentdojo").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_example_profiles_load_and_fit_the_schema(file: Path) -> None:
    assert len(Profiles.load(file)) > 10
    jsonschema.Draft202012Validator(profiles_schema()).validate(yaml.safe_load(file.read_text()))


# -- looking up --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("PRF-2")
def test_a_name_that_two_servers_have_finds_nothing() -> None:
    profiles = Profiles.load({"profiles": {"a/pay": {"intents": ["a"]}, "b/pay": {"intents": ["b"]}}})

    assert profiles.find("pay") is None
    assert profiles.find("pay", "c") is None
    assert profiles.find("pay", "a") == Profile(intents=("a",))


@pytest.mark.spec("PRF-2")
def test_one_server_s_profile_is_not_another_s() -> None:
    assert Profiles.load({"profiles": {"a/pay": {}}}).find("pay", "evil") is None


@pytest.mark.spec("PRF-2")
def test_an_unambiguous_name_is_found_with_and_without_its_namespace() -> None:
    profiles = Profiles.load(
        {"profiles": {"a/pay": {"sink": True}, "read": {}, "prompt://s/hello": {"intents": ["x"]}}}
    )

    assert profiles.find("pay") == Profile(sink=True)
    assert profiles.find("read", "any") == Profile()
    assert profiles.for_uri("prompt://s/hello") == Profile(intents=("x",))
    assert profiles.find("hello") is None


@pytest.mark.spec("PRF-2")
def test_prompts_are_found_as_tools_are() -> None:
    profiles = Profiles.load({"profiles": {"prompt://s/hello": {"intents": ["x"]}, "prompt://_/bye": {}, "hello": {}}})

    found = {
        (name, server): None if (at := profiles.lookup(Entity.prompt(name, server))) is None else at.uri
        for name in ("hello", "bye")
        for server in (None, "s", "other")
    }

    assert found == {
        ("hello", None): "prompt://s/hello",
        ("hello", "s"): "prompt://s/hello",
        ("hello", "other"): None,
        ("bye", None): "prompt://_/bye",
        ("bye", "s"): "prompt://_/bye",
        ("bye", "other"): "prompt://_/bye",
    }


@pytest.mark.spec("PRF-2")
def test_what_must_not_be_missed_is_every_profile_that_may_be_meant() -> None:
    profiles = Profiles.load({"profiles": {"a/pay": {}, "b/pay": {}, "read": {}}})

    assert [at.uri for at in profiles.named(Entity.tool("pay", None))] == ["tool://a/pay", "tool://b/pay"]
    assert [at.uri for at in profiles.named(Entity.tool("pay", "b"))] == ["tool://b/pay"]
    assert [at.uri for at in profiles.named(Entity.tool("read", "c"))] == ["tool://_/read"]
    assert profiles.named(Entity.tool("other", None)) == profiles.named(Entity.resource("db://pay")) == ()


# -- patterns ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("PRF-3")
@pytest.mark.parametrize(
    "pattern", ["a..b", "a b.", "[x]", "a[", "~", ".", "a.[0", "x" + ".x" * 32, "a~b", '["a]', "/a/b"]
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        compiled(pattern)


@pytest.mark.spec("PRF-3")
@pytest.mark.parametrize(
    ("pattern", "named", "not_named"),
    [
        ("sender", [("sender",), ("sender", "name")], [("senders",), ("x", "sender"), ("sender", Mark.KEY)]),
        ("[*].sender", [(0, "sender"), (7, "sender", 1)], [("sender",), (0, "body")]),
        ("$.a[1]", [("a", 1)], [("a", 0)]),
        ("**.id", [("id",), ("a", 0, "id")], [("a", "idx")]),
        ("a.**.z", [("a", "z"), ("a", "b", "c", "z", "more")], [("z",), ("b", "z")]),
        ("*~", [("Good Night", Mark.KEY)], [("Good Night",), ("a", "b", Mark.KEY)]),
        ("**~", [("a", Mark.KEY), ("a", 0, "b", Mark.KEY)], [("a",)]),
        ('a["b.c"]', [("a", "b.c")], [("a", "b", "c")]),
        ("", [(), ("a",)], [("a", Mark.KEY)]),
    ],
)
def test_a_pattern_names_a_field_and_what_is_below(pattern: str, named: list[Any], not_named: list[Any]) -> None:
    assert [path for path in named if not names(compiled(pattern), path)] == []
    assert [path for path in not_named if names(compiled(pattern), path)] == []


@pytest.mark.spec("PRF-3")
def test_paths_are_shown_without_what_a_third_party_wrote() -> None:
    assert shape((3, "sender", "x" * 41, "evil.com", Mark.KEY)) == "[*].sender.*.*~"
    assert [escaped(key) for key in ("a/b", "~", "~1", "plain")] == ["a~1b", "~0", "~01", "plain"]


@pytest.mark.spec("PRF-3")
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=10,
    ).filter(lambda document: isinstance(document, list | dict))
)
def test_every_leaf_is_met_once_and_named_by_its_own_path(document: Any) -> None:
    paths = [path for path, _ in leaves(document)]

    assert len(set(paths)) == len(paths)
    for path, leaf in leaves(document):
        *above, last = path if path[-1:] != (Mark.KEY,) else path[:-1]
        held = reduce(lambda value, step: value[step], above, document)
        assert (last in held and last == leaf) if path[-1] is Mark.KEY else held[last] is leaf


# -- what profiles say -------------------------------------------------------------------------------------------------


@pytest.mark.spec("PRF-4")
def test_a_profile_that_says_nothing_trusts_nothing_and_may_write() -> None:
    profile = Profile()

    assert profile.rules.trust is profile.rules.weakest is Trust.UNTRUSTED
    assert profile.writes
    assert not Profile(actions=("read",)).writes


@pytest.mark.spec("PRF-12")
@pytest.mark.parametrize(
    ("said", "sink"),
    [
        ({"actions": ["read", "send"]}, True),
        ({"actions": ["export"]}, True),
        ({"actions": ["forward", "store"]}, True),
        ({"irreversible": True}, True),
        ({"actions": ["read", "write"]}, False),
        ({"actions": [], "irreversible": False}, False),
        ({"actions": None}, False),
        ({}, False),
        ({"actions": ["send"], "irreversible": True, "sink": False}, False),
        ({"actions": ["read"], "sink": True}, True),
    ],
)
def test_a_tool_that_sends_or_cannot_be_undone_is_a_sink_unless_declared_otherwise(
    said: dict[str, Any], sink: bool
) -> None:
    loaded = Profiles.load({"profiles": {"mail": said}})
    asked = Profiles.load(lambda uri: said if uri.endswith("mail") else None)

    for profile in (Profile(**said), loaded.find("mail"), asked.find("mail")):
        assert profile is not None
        assert profile.acts is sink
    assert Profile.model_validate(Profile(**said)).acts is sink


@pytest.mark.spec("PRF-12")
@pytest.mark.parametrize("actions", ["send", b"send", {"send": 1}, [["send"]], 3])
def test_actions_that_are_none_are_refused_and_imply_nothing(actions: Any) -> None:
    assert refused({"profiles": {"mail": {"actions": actions}}}).code == "profile.invalid"


@pytest.mark.spec("PRF-4")
def test_a_whole_result_is_trusted_as_its_worst_field() -> None:
    profiles = Profiles.load({"profiles": {"a": {"result": {"trust": "trusted", "fields": {"b": "untrusted"}}}}})

    profile = profiles.find("a")

    assert profile is not None
    assert profile.rules.weakest is Trust.UNTRUSTED


@pytest.mark.spec("PRF-5")
def test_an_argument_that_is_both_is_control() -> None:
    profile = Profile(control=("to", "items[*].id"), content=("to", "body"))

    uses = [profile.use_of(path) for path in (("to", 0), ("body",), ("items", 2, "id"), ("items", 2, "x"))]
    assert uses == ["control", "content", "control", "other"]


@pytest.mark.spec("PRF-5")
@pytest.mark.parametrize(
    ("asked_for", "text", "said"),
    [
        ({"verbs": ["send"]}, "Resend nothing", False),
        ({"verbs": ["enable"]}, "Turn it off", False),
        ({"verbs": ["enable"]}, "Please turn protection on", True),
        ({"verbs": ["reject"]}, "I turned her leave down", True),
        ({"verbs": ["pay"], "objects": ["enable"]}, "pay and turn on", False),
        ({"verbs": ["send"]}, "please SENDING this", True),
        ({"verbs": ["cancel"]}, "it was cancelled? cancels", True),
        ({"verbs": ["schedule"], "objects": ["payment"]}, "scheduling my payments", True),
        ({"verbs": ["schedule"], "objects": ["payment"]}, "scheduling my meeting", False),
        ({"verbs": ["copy"]}, "he copied it", True),
        ({"verbs": ["set up"]}, "Setting  up the thing", True),
        ({"verbs": ["set up"]}, "set it up", True),
        ({"verbs": ["set up"]}, "set it and go up", False),
        ({"verbs": ["set reminder"]}, "Set me a new reminder", True),
        ({"verbs": ["set reminder"]}, "set it and send a reminder", False),
        ({"verbs": ["mail"]}, "Read my new mail", False),
        ({"verbs": ["mail"]}, "Read my mail and mail Bob", True),
        ({"verbs": ["schedule"]}, "what's on my schedule?", False),
        ({"verbs": ["refund"]}, "I want a refund", True),
        ({"verbs": ["pay"], "objects": ["mail"]}, "Check my mail and pay", True),
        ({"verbs": ["set"]}, "upset", False),
        ({"verbs": ["pay"]}, "I want it paid", True),
        ({"verbs": ["book"], "objects": ["hotel room"]}, "book two hotel rooms", True),
        ({"patterns": [r"\bpay\b"]}, "Pay it", True),
        ({"objects": ["pay"]}, "pay", False),
        ({}, "anything", False),
    ],
)
def test_words_ask_for_an_act(asked_for: dict[str, Any], text: str, said: bool) -> None:
    assert AskedFor(**asked_for).is_said_in(text) is said


@pytest.mark.spec("PRF-11")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Read it, but do not send anything.", False),
        ("don\u2019t read or send it", False),
        ("Summarize it without sending", False),
        ("never ever send it", False),
        ("tell me rather than send it", False),
        ("Do not delete it but send it", True),
        ("do not wait, send it", True),
        ("Don't forget to send it", True),
        ("why don't you send it", True),
        ("never send the first; send the second", True),
    ],
)
def test_what_is_forbidden_is_not_asked_for(text: str, said: bool) -> None:
    assert AskedFor(verbs=("send",)).is_said_in(text) is said
    assert AskedFor(patterns=(r"\bsend",)).is_said_in(text) is said


@pytest.mark.spec("PRF-11")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Tell me what they wrote", False),
        ("Read it and let us know", False),
        ("Tell me what he wrote, then tell Ann", True),
        ("Let me know, and let the whole team at Acme know", True),
    ],
)
def test_telling_the_user_something_does_not_ask_for_a_message_to_others(text: str, said: bool) -> None:
    assert AskedFor(verbs=("tell", "let know")).is_said_in(text) is said


@pytest.mark.spec("PRF-11")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Who is Ann, and what do the mails say?", False),
        ("Does her last mail say when?", False),
        ("If Ann's mail is new, read it", False),
        ("Take the number from the mail", False),
        ("What is new in our mail?", False),
        ("What do you think? Mail it", True),
        ("If he asks, mail it to him", True),
        ("Could you do the mail to Ann", True),
    ],
)
def test_what_a_question_or_condition_is_about_is_no_act(text: str, said: bool) -> None:
    assert AskedFor(verbs=("mail",)).is_said_in(text) is said


@pytest.mark.spec("PRF-5")
@pytest.mark.parametrize(
    ("verb", "text"),
    [
        ("inform", "Please let #ops know."),
        ("approve", "Say yes to both."),
        ("reply", "Get back to her about it"),
        ("acknowledge", "get rid of alarm 12"),
        ("message", "drop Lia a line"),
        ("reduce", "Knock 20% off the price"),
        ("reschedule", "Push Ward's slot in theatre 2.1 back"),
        ("update", "Please amend it"),
        ("grant", "Dr Foley needs read access"),
        ("scale", "Double the web group until tomorrow"),
        ("raise", "Bump it by 800"),
        ("refund", "Brandl gets his fifty euros back"),
        ("lower", "Take fifteen percent off for her"),
        ("release", "Their order can go out now"),
        ("relocate", "Swap the ropes over to B-07"),
        ("assign", "Lena should take these two over"),
        ("mail", "Refund everyone and apologise"),
        ("reserve", "Hold four seats in row C"),
        ("set", "Make it a fiver"),
        ("purchase", "Order another twenty of these"),
        ("close", "Mark it as done"),
    ],
)
def test_an_act_is_asked_for_by_its_other_names(verb: str, text: str) -> None:
    assert AskedFor(verbs=(verb,)).is_said_in(text)
    assert not AskedFor(verbs=(verb,)).is_said_in(
        "Let it. Know this: get it, say yes, push; knock, and take the line off"
    )


# -- MCP ---------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("PRF-6")
def test_a_server_cannot_talk_its_tools_harmless() -> None:
    known = Profile(irreversible=True, sink=True, control=("id",))
    claims = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}

    assert annotated(claims, known) == known
    assert annotated(claims, known, trusted=True) == known
    assert annotated(claims) == Profile(control=("**",), sink=True)


@pytest.mark.spec("PRF-6")
def test_annotations_make_a_profile_stricter() -> None:
    known = Profile.model_validate({"result": {"trust": "trusted", "format": "json"}})

    made = annotated({"destructiveHint": True, "openWorldHint": True}, known)

    assert (made.irreversible, made.sink, made.rules.trust, made.rules.format) == (
        True,
        True,
        Trust.UNTRUSTED,
        "json",
    )
    assert annotated({}).irreversible


@pytest.mark.spec("PRF-6")
def test_a_trusted_server_may_say_that_a_tool_only_reads() -> None:
    tools = [
        ToolDefinition(name="look", extra={"mcp": {"annotations": {"readOnlyHint": True, "openWorldHint": False}}}),
        ToolDefinition(name="plain"),
    ]

    profiles = Profiles().with_mcp_tools(tools, trusted=True)

    assert profiles.find("look") == Profile(actions=("read",), sink=False, control=("**",))
    assert profiles.find("plain") is None


@pytest.mark.spec("PRF-6")
def test_a_server_is_believed_only_if_the_registry_trusts_it() -> None:
    profiles = Profiles.load({"profiles": {}, "servers": {"home": {"trusted": True}, "far": {}}})
    reads = [ToolDefinition(name="look", extra={"mcp": {"annotations": {"readOnlyHint": True}}})]

    found = {
        server: profiles.with_mcp_tools(reads, server=server).find("look", server)
        for server in ("home", "far", "unknown", None)
    }

    claimed = Profile(control=("**",), sink=True)
    assert found == {
        "home": Profile(actions=("read",), control=("**",), sink=True),
        "far": claimed,
        "unknown": claimed,
        None: claimed,
    }
    assert profiles.with_mcp_tools(reads, server="home", trusted=False).find("look", "home") == claimed


@pytest.mark.spec("PRF-10")
def test_the_schema_of_a_tool_is_the_operator_s_before_the_server_s() -> None:
    own, said = {"type": "object", "required": ["id"]}, {"type": "object"}
    profiles = Profiles.load({"profiles": {"s/pay": {"input_schema": own}, "read": {"input_schema": own}}})

    told = profiles.with_mcp_tools(
        [ToolDefinition(name="pay", input_schema=said), ToolDefinition(name="list", input_schema=said)], server="s"
    )

    uris = ("tool://s/pay", "tool://_/pay", "tool://x/read", "tool://s/list", "tool://_/list", "db://pay", "tool://x")
    assert [told.tool_schema(uri) for uri in uris] == [own, own, own, said, None, None, None]
    assert told.find("list", "s") is None


# -- what others read --------------------------------------------------------------------------------------------------


@pytest.mark.spec("PRF-7")
def test_rules_meet_what_profiles_say_in_what_is_judged_and_in_no_data(tmp_path: Path) -> None:
    hit = 'deny contains {{"code": "{0}", "reason": "x"}} if {1}'
    rules = {
        "data": hit.format("data", "data.cmf.profiles"),
        "object": hit.format("object", 'input.extensions.security.object.permissions == ["p"]'),
        "origins": hit.format("origins", "input.origins[0].sink == true"),
    }
    home = write_rules(tmp_path, rules, kinds="tool_call", capabilities="read_objects")
    profiles = Profiles.load({"profiles": {"y": {"sink": True, "object": {"permissions": ["p"]}}}})
    call = Message(role="assistant", content=[ToolCallPart(name="y", arguments={"a": "b"})])

    with Guard(home, profiles=profiles) as guard, Guard(home) as bare:
        assert {one.code for one in guard.decide(call).hits} == {"object", "origins"}
        assert guard.revision == bare.revision


@pytest.mark.spec("PRF-7")
def test_profiles_that_say_the_same_have_one_revision_and_all_others_another(tmp_path: Path) -> None:
    said: dict[str, Any] = {"a": {"sink": True, "actions": ["send"]}, "s/b": {}}
    file = tmp_path / "profiles.yaml"
    file.write_text("servers: {s: {trusted: true}}\nprofiles:\n  s/b: {}\n  a: {actions: [send], sink: true}\n")
    known = Profiles.load({"profiles": said, "servers": {"s": {"trusted": True}}})
    others = [
        Profiles.load({"profiles": said}),
        Profiles.load({"profiles": {**said, "a": {"sink": True}}, "servers": {"s": {"trusted": True}}}),
        Profiles.load({"profiles": {**said, "c": {}}, "servers": {"s": {"trusted": True}}}),
        known.with_mcp_tools([ToolDefinition(name="b", namespace="s")]),
    ]

    assert Profiles.load(file).revision == known.revision
    assert len({each.revision for each in (known, *others)}) == 5
    assert Profiles().revision is None is Profiles.load(lambda _: None).revision


_WORD = st.sampled_from(["sink", "control", "result", "trust", "fields", "a", "trusted", "metadata", "labels", "read"])
_JSON = st.recursive(
    st.booleans() | st.integers(0, 2) | _WORD | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_WORD, inner, max_size=3),
    max_leaves=8,
)
_PROFILE = st.dictionaries(
    st.sampled_from(["sink", "irreversible", "control", "content", "actions", "result", "asked_for", "intents", "x"]),
    _JSON
    | st.lists(_WORD, max_size=2)
    | st.fixed_dictionaries({"trust": _WORD})
    | st.fixed_dictionaries({"fields": st.dictionaries(_WORD, _JSON, max_size=2)})
    | st.fixed_dictionaries({"verbs": st.lists(_WORD, max_size=2)}),
    max_size=2,
)


@pytest.mark.spec("PRF-8")
@given(_PROFILE)
def test_loading_and_the_schema_agree(profile: dict[str, Any]) -> None:
    document = {"profiles": {"tool": profile}}

    fits = jsonschema.Draft202012Validator(profiles_schema()).is_valid(document)

    try:
        Profiles.load(document)
        loads = True
    except ConfigError:
        loads = False
    assert loads is fits
