"""Revisions of policy: which are at hand, differences between two, what another would have done."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.review.traffic import HOSTILE, Client, judged, opened, record

from cmf import SubjectExtension
from pipeline.audit.record import Record
from pipeline.policy.bundle_signature import packed
from pipeline.policy.policy_set import PolicySet, load
from pipeline.review.access import Role
from pipeline.review.revisions import REPLAYED
from pipeline.review.rules import PoliciesAtHand
from pipeline.review.site import Site
from pipeline.store.database import Store
from pipeline.store.policies import keep_policies

pytestmark = pytest.mark.native

SAYS = 'deny contains {{"code": "test.{0}", "reason": "Not this."}} if contains(input.content, "{0}")'


def rules(folder: Path, **said: str) -> PolicySet:
    write_rules(folder, {name: SAYS.format(word) for name, word in said.items()}, kinds="text")
    return load(folder)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> tuple[PolicySet, PolicySet]:
    """One rule; then another word in it, and one more."""
    home = tmp_path_factory.mktemp("sets")
    return rules(home / "a", words="alpha"), rules(home / "b", words="beta", more=HOSTILE.replace('"', ""))


def keep(store: Store, revision: str, bundle: bytes) -> None:
    row = Record(
        id=f"pol_{revision[:8]}", timestamp=datetime(2026, 1, 1, tzinfo=UTC), subject=None, session=None,
        verdict="none", action="load", revision=revision, body=b"{}", kind="policy",
    )  # fmt: skip
    keep_policies(store, revision, bundle, row)


@pytest.mark.spec("REV-9", "REV-14")
def test_policies_that_a_gateway_stored_are_shown_and_forged_ones_are_not(
    tmp_path: Path, sets: tuple[PolicySet, PolicySet]
) -> None:
    first, second = sets
    said = [record("deny", rule="test/words", revision=one) for one in (first.revision, second.revision, "f" * 64)]
    with opened(tmp_path, *said) as store:
        keep(store, first.revision, packed(first.bundle()))
        keep(store, second.revision, packed(first.bundle()))  # another set under its name
        keep(store, "f" * 64, b"no bundle")
        client = Client(Site(store))

        rows = {row["revision"]: row for row in client.json("/policies")["rows"]}
        page = client.json(f"/policies/{first.revision}")
        assert [one["id"] for one in page["rules"]] == ["test/words"]
        assert "cmf/rules/test/words/words.rego" in [one["path"] for one in page["files"]]
        assert not any("main" in one["path"] for one in page["files"])
        assert rows[first.revision]["there"]
        for other in (second.revision, "f" * 64):
            assert client.json(f"/policies/{other}")["there"] is False
            assert client.get("/policies/compare", base=first.revision, head=other).status_code == 404
        assert client.get(f"/policies/{'0' * 64}").status_code == 404
        (hit,) = client.json(f"/decisions/{said[0].id}")["rules"]
        assert hit["place"]["path"] == "cmf/rules/test/words/words.rego"
        assert "not available" in client.get(f"/policies/{second.revision}").text


@pytest.mark.spec("REV-14")
def test_two_revisions_differ_in_files_and_lines_that_are_text(
    tmp_path: Path, sets: tuple[PolicySet, PolicySet]
) -> None:
    first, second = sets
    with opened(tmp_path, record(revision=first.revision), record(revision=second.revision, minute=5)) as store:
        client = Client(Site(store, policies=PoliciesAtHand(sets)))
        both = {"base": first.revision, "head": second.revision}

        newest, oldest = client.json("/policies")["rows"]
        assert (newest["before"], oldest["before"]) == (first.revision, None)
        found = client.json("/policies/compare", **both)
        files = {one["path"].rpartition("/")[2]: one for one in found["files"]}
        assert found["counts"] == {"added": 1, "removed": 0, "changed": 1}
        assert (files["words.rego"]["status"], files["words.rego"]["added"], files["words.rego"]["removed"]) == (
            "changed", 1, 1,
        )  # fmt: skip
        (part,) = files["words.rego"]["parts"]
        changed = [line for line in part if line["change"]]
        assert [(line["change"], "alpha" in line["text"], "beta" in line["text"]) for line in changed] == [
            ("removed", True, False),
            ("added", False, True),
        ]
        assert changed[0]["old"] == changed[1]["new"]
        assert files["more.rego"]["status"] == "added"
        back = client.json("/policies/compare", base=second.revision, head=first.revision)
        assert back["counts"] == {"added": 0, "removed": 1, "changed": 1}

        page = client.get("/policies/compare", **both).text
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)" in page
        assert "<ins>" in page
        assert "<del>" in page
        same = client.get("/policies/compare", base=first.revision, head=first.revision)
        assert "The two are the same." in same.text


@pytest.mark.spec("REV-15")
def test_the_effect_of_another_revision_is_shown_without_content_and_put_on_record(
    tmp_path: Path, sets: tuple[PolicySet, PolicySet]
) -> None:
    first, second = sets
    with judged(tmp_path, first, "say alpha-canary", "say beta-canary", "say nothing") as store:
        site = Site(store, policies=PoliciesAtHand(sets))
        client = Client(site, Role.REVIEWER)
        both = {"base": first.revision, "head": second.revision}

        assert Client(site, Role.VIEWER).post("/policies/impact", **both, reason="why").status_code == 403
        assert client.post("/policies/impact", **both).status_code == 422
        assert client.post("/policies/impact", base=first.revision, head="0" * 64, reason="why").status_code == 404
        assert [row.kind for row in site.catalog.rows].count("reveal") == 0

        page = client.post("/policies/impact", **both, reason="Before it is merged").text

        assert [row.kind for row in site.catalog.rows].count("reveal") == 1
        assert "canary" not in page
        assert f"The newest {REPLAYED}" not in page
        lines = list(site.contents.lines(actor=SubjectExtension(id="ann"), reason="test")())
        impact = site.again.impact(lines, first.revision, second.revision)
        assert impact is not None
        assert [impact[name]["count"] for name in ("newly_denied", "newly_allowed", "unchanged")] == [1, 1, 1]
        assert "test/words" in page
        assert site.again.impact([], first.revision, "0" * 64) is None


@pytest.mark.spec("REV-13")
def test_with_the_content_comes_what_rules_read_and_what_went_on(tmp_path: Path) -> None:
    redacts = (
        'redact contains {"code": "test.cut", "reason": "Cut.", "spans": [[4, 9]], "replacement": "mask"} if {\n'
        '\tsome word in {"alpha", "beta"}\n\tcontains(input.content, word)\n}'
    )
    write_rules(tmp_path / "policy", {"cuts": redacts, "stops": SAYS.format("omega")}, kinds="text")
    policies = load(tmp_path / "policy")
    with judged(tmp_path, policies, "say alpha now", "say omega", "say nothing") as store:
        site = Site(store, policies=PoliciesAtHand([policies]))
        lines = list(site.contents.lines(actor=SubjectExtension(id="ann"), reason="test")())
        cut, stopped, plain = (site.again.shown(line) for line in lines)

        (why,) = cut["why"]
        assert (why["rule"], why["effect"], why["view"]) == ("test/cuts", "redact", "content[0]")
        assert why["text"][0].startswith("redact contains")
        assert why["text"][-1] == "}"
        assert ["word", '"alpha"'] in why["ways"][0]
        assert why["seen"] == [["input.content", '"say alpha now"']]
        (stretch,) = cut["out"]["parts"]
        assert [("alpha" in line["text"], line["change"]) for line in stretch if line["change"]] == [
            (True, "removed"), (False, "added"),
        ]  # fmt: skip
        assert stopped["out"] == {"goes": False, "parts": []}
        assert (plain["out"], plain["why"]) == ({"goes": True, "parts": []}, [])

        elsewhere = Site(store).again.shown(lines[0])
        assert (elsewhere["out"], elsewhere["why"], elsewhere["judged"]) == (None, [], [])
        client = Client(site)
        for row, words in zip(client.json("/decisions")["rows"][::-1], ("word", "Nothing.", "unchanged"), strict=True):
            assert words in client.post(f"/decisions/{row['id']}/reveal", reason="why").text
