"""What a builtin means on both engines loads without a word, and what it does not is told or refused."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path

import pytest
from tests.pipeline.policy_files import GOOD, PLACE, Write, refusal, write

from pipeline import policy_set
from pipeline.checks.dialects import dissent
from pipeline.engines.base import Decided
from pipeline.engines.embedded import EmbeddedEngine

__all__ = ["write"]  # a fixture

TOLD, REFUSED = False, True


def files(call: str) -> dict[str, str]:
    helpers = '\n_pattern := "a**"\n\n_between := ["/"]\n'
    return {PLACE: GOOD.replace("input.properties.marked", f"{{\n\tcount({call}) > 0\n}}") + helpers}


@pytest.mark.spec("POL-25")
@pytest.mark.parametrize(
    ("call", "refused", "words"),
    [
        ('glob.match("tool://mail**", ["/"], input.uri)', REFUSED, "whole segments"),
        ('glob.match(_pattern, ["/"], input.uri)', REFUSED, "whole segments"),
        ('glob.match("a***", null, input.uri)', None, ""),
        ('glob.match("read:*", [":"], input.uri)', REFUSED, "`:` separates"),
        ('glob.match(input.uri, [":"], "a")', REFUSED, "`:` separates"),
        ('glob.match("a*", [".", "/"], input.uri)', REFUSED, "`/` beside"),
        ('glob.match("a**", _between, input.uri)', TOLD, "whole segments"),
        ('glob.match("a/**", [\n"/", # not , "."]\n], input.uri)', TOLD, "whole segments"),
        ('glob.match(input.properties.pattern, ["/"], concat(",", ["[", input.uri]))', TOLD, "not known"),
        ('glob.match("a?", ["/"], input.uri)', TOLD, "not ASCII"),
        ('glob.match("tool://mail/**", ["/"], input.uri)', None, ""),
        ('glob.match("**.example.com", [], input.uri)', None, ""),
        ('glob.match("tool://[,](*", ["/"], input.uri)', TOLD, "not ASCII"),
        ("glob.match(input.uri, null, `a`)", None, ""),
        ("urlquery.decode(input.uri)", TOLD, "behind `#`"),
        ('urlquery.decode(replace(input.uri, "#", "%23"))', None, ""),
        ('net.cidr_contains("10.0.0.0/8", input.uri)', TOLD, "no IPv4 network"),
        ('net.cidr_contains("10.0.0.0/8", trim_prefix(lower(input.uri), "::ffff:"))', None, ""),
        ("glob.quote_meta(input.uri)", TOLD, "only `*`"),
        ('json.remove(input.arguments, ["/a/b"])', REFUSED, "leads nowhere"),
        ('json.filter(input.arguments, ["a/b", ["/c"]])', None, ""),
        ('json.filter(input.arguments, [input.uri, "/a"])', None, ""),
        ('strings.replace_n({"a": "b", "b": "c"}, input.uri)', REFUSED, "after the other"),
        ('strings.replace_n({"a": "bb", "c": "d"}, input.uri)', None, ""),
        ("strings.replace_n(input.arguments, input.uri)", None, ""),
    ],
)
def test_a_call_that_opa_hears_otherwise_is_found(write: Write, call: str, refused: bool | None, words: str) -> None:
    folder = write(files(f"[1 | {call}]"))
    if refused:
        error = refusal(folder)
        assert (error.code, error.line) == ("policy.builtin-dialect", 13)
        assert words in error.message
        return

    found = [one for one in policy_set.load(folder).findings if one.code == "policy.builtin-dialect"]

    assert [words in one.message and one.place.line == 13 for one in found] == ([] if refused is None else [True])


@pytest.mark.opa
@pytest.mark.spec("POL-25")
@pytest.mark.parametrize("between", [["/"], ["."], [], ["-"]], ids=repr)
def test_a_glob_that_nothing_is_said_of_means_the_same_on_both_engines(
    between: list[str], opa_binary: Path, tmp_path: Path
) -> None:
    mark = between[0] if between else "."
    made = {
        "".join(pieces)
        for size in (1, 2, 3)
        for pieces in itertools.product(["a", "*", "**", mark, "{a,b}"], repeat=size)
    }
    patterns = sorted(pattern for pattern in made if dissent(pattern, between) is None)
    texts = ["".join(letters) for size in range(5) for letters in itertools.product(["a", "b", mark], repeat=size)]
    rule = f"r := [[t | some t in input.texts; glob.match(p, {json.dumps(between)}, t)] | some p in input.patterns]"
    document = json.dumps({"patterns": patterns, "texts": texts})
    (tmp_path / "a.rego").write_text(f"package a\n\n{rule}\n")

    command = [opa_binary, "eval", "--format=json", "-d", tmp_path / "a.rego", "--stdin-input", "data.a.r"]
    done = subprocess.run(command, input=document, capture_output=True, text=True, check=True)
    engine = EmbeddedEngine([("a.rego", f"package a\n\n{rule}\n")], {}, ["data.a.r"])
    (result,) = engine.evaluate(["data.a.r"], b"{}", [document.encode()], timeout_seconds=5.0)

    assert isinstance(result, Decided)
    assert result.value == json.loads(done.stdout)["result"][0]["expressions"][0]["value"]
    assert len(patterns) > 40
