"""The review site in a real browser: the reviewer's journey, by mouse and by keyboard; hostile content; axe."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from examples.demo_review import fill
from playwright.sync_api import Browser, Page, expect
from tests.pipeline.browser import Watch, context, origin, running
from tests.pipeline.review.test_approving import asked
from tests.pipeline.review.traffic import HOSTILE, keep, record
from typer.testing import CliRunner

from pipeline.cli.app import app
from pipeline.store.database import Store

pytestmark = [pytest.mark.chromium, pytest.mark.native, pytest.mark.slow, pytest.mark.no_cover]

LONG = "L" * 10_000
PAGES = ("/sessions", "/sessions?q=needs:review", "/decisions", "/approvals", "/signoffs", "/policies", "/integrity")
LOOKS: Final[tuple[tuple[int, Literal["light", "dark"]], ...]] = ((390, "light"), (1280, "light"), (1280, "dark"))
MORE = ("/charts", "/tools", "/sign?q=verdict:deny", "/nowhere", "/sessions?q=nonsense")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's hour."""
    file = tmp_path_factory.mktemp("demo") / "demo.sqlite3"
    fill(file)
    return file


@pytest.fixture(scope="module")
def address(filled: Path) -> Iterator[str]:
    with running(
        "review", str(filled), "--as", "alice", "--role", "signer", "--policies", "examples/policies"
    ) as printed:
        yield printed


@pytest.fixture
def page(browser: Browser, address: str, watch: Watch) -> Iterator[Page]:
    with context(browser) as opened:
        shown = watch.on(opened.new_page())
        shown.goto(address)
        expect(shown.locator("h1")).to_have_text("Sessions")
        yield shown


def at(address: str, path: str) -> str:
    return origin(address) + path


@pytest.mark.spec("REV-2")
@pytest.mark.spec("REV-25")
@pytest.mark.spec("CLI-90")
def test_a_reviewer_finds_judges_signs_and_takes_away_what_can_be_proved(page: Page, tmp_path: Path) -> None:
    page.get_by_role("link", name="data/label_to_sink").first.click()
    expect(page.locator("#q")).to_have_value("needs:review rule:data/label_to_sink")
    page.locator("#rows a.row").first.click()
    session = page.locator("h1").inner_text()
    page.get_by_role("link", name=re.compile("Refused")).first.click()
    expect(page.locator("h1")).to_have_text("Refused: rule data/label_to_sink denied the tool call send_mail.")
    decision = page.url.rpartition("/")[2]
    expect(page.get_by_role("link", name=re.compile(r"label_to_sink\.rego:\d+"))).to_be_visible()

    page.get_by_label("false positive").check()
    page.get_by_label("Comment").fill("The mailbox is ours.")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("aside .words")).to_contain_text("alice false positive")

    page.get_by_role("link", name=session).first.click()
    page.get_by_role("link", name="Sign off this session…").click()
    page.get_by_role("button", name=re.compile("Sign off")).click()
    expect(page.locator(".verdict.good")).to_contain_text("The set is unchanged since it was signed")

    page.goto(at(page.url, "/decisions?q=disposition:false_positive"))
    with page.expect_download() as download:
        page.get_by_role("button", name="Export evidence").click()
    evidence = tmp_path / "evidence.zip"
    download.value.save_as(evidence)
    checked = CliRunner().invoke(app, ["audit", "verify", str(evidence)])
    assert checked.exit_code == 0, checked.output

    damaged = bytearray(evidence.read_bytes())
    place = damaged.index(b"label_to_sink", damaged.index(decision.encode()))
    damaged[place] ^= 1
    evidence.write_bytes(damaged)
    checked = CliRunner().invoke(app, ["audit", "verify", str(evidence)])
    assert checked.exit_code == 1
    assert decision in checked.output


@pytest.mark.spec("REV-12")
@pytest.mark.spec("REV-13")
def test_content_is_shown_only_once_that_is_on_record(page: Page, filled: Path) -> None:
    page.goto(at(page.url, "/decisions?q=effect:redact"))
    page.locator("#rows a.row").first.click()
    expect(page.locator("main")).not_to_contain_text("My upload fails")
    assert _kinds(filled).count("reveal") == 0

    page.get_by_label("Reason").fill("To see whether it is a key.")
    page.get_by_role("button", name="Record the reason and show").click()

    expect(page.locator(".command").last).to_contain_text("verdict: allow")
    assert _kinds(filled).count("reveal") == 1
    expect(page.locator("main")).to_contain_text("the policy that decided")
    expect(page.locator(".words")).to_contain_text("alice viewed the content")


def _kinds(file: Path) -> list[str]:
    with sqlite3.connect(file) as connection:
        found = [kind for (kind,) in connection.execute("SELECT kind FROM records")]
    connection.close()
    return found


@pytest.mark.spec("REV-14")
@pytest.mark.spec("REV-15")
def test_two_revisions_are_compared_and_the_second_is_asked(page: Page) -> None:
    page.get_by_role("link", name="Policies", exact=True).click()
    page.get_by_role("link", name="from the previous one").click()
    expect(page.locator("h1")).to_have_text("1 file differs")
    expect(page.locator(".diff tr.added").first).to_be_visible()

    page.get_by_label("Reason").fill("Before it goes live.")
    page.get_by_role("button", name="Record and judge").click()

    expect(page.locator(".impact tbody tr").first).to_contain_text("newly denied")
    expect(page.locator(".impact")).to_contain_text("identity/tool_role")


@pytest.mark.spec("REV-26")
def test_an_approval_is_given_on_the_page(page: Page) -> None:
    page.get_by_role("link", name="Approvals").click()
    waiting = page.locator(".cards li")
    before = waiting.count()
    assert before == 2

    page.get_by_role("button", name="Approve tool://_/drop_database").first.click()

    expect(waiting).to_have_count(before - 1)
    page.get_by_role("button", name="Deny tool://_/drop_database").first.click()
    expect(page.locator(".empty")).to_have_text("Nothing waits for approval.")


@pytest.mark.spec("REV-6")
def test_more_rows_come_without_leaving_the_page(browser: Browser, tmp_path: Path) -> None:
    with Store.at(tmp_path / "s.sqlite3") as store:
        keep(store, *(record("deny", session=f"s{n}", minute=n) for n in range(70)))
    with running("review", str(tmp_path / "s.sqlite3"), "--as", "ann") as printed, context(browser) as opened:
        watching = Watch(printed)
        page = watching.on(opened.new_page())
        page.goto(printed)
        expect(page.locator("#rows tr")).to_have_count(50)
        page.get_by_text("Show more").click()
        expect(page.locator("#rows tr")).to_have_count(70)
        expect(page.get_by_text("Show more")).to_have_count(0)
        assert watching.wrong == []


@pytest.mark.spec("REV-35")
def test_the_journey_needs_no_mouse(page: Page) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    page.keyboard.press("Enter")
    _tab_to(page, "#q")
    page.keyboard.press("Control+a")
    page.keyboard.type("verdict:deny reviewed:no")
    page.keyboard.press("Enter")
    expect(page.locator("#q")).to_have_value("verdict:deny reviewed:no")
    _tab_to(page, "[href='#rows']")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "row"
    page.keyboard.press("j")
    assert page.evaluate("[...document.querySelectorAll('#rows a.row')].indexOf(document.activeElement)") == 1
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.locator(".timeline")).to_be_visible()
    _tab_to(page, ".entry.deny a.row")
    page.keyboard.press("Enter")
    expect(page.locator("h1.sentence")).to_be_visible()
    _tab_to(page, "[name=disposition]")
    page.keyboard.press("Space")
    _tab_to(page, ".review button")
    page.keyboard.press("Enter")
    expect(page.locator("aside .words")).to_contain_text("alice ok")


def _tab_to(page: Page, selector: str) -> None:
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"{selector} shows no focus"
            return
    pytest.fail(f"{selector} cannot be reached")


@pytest.mark.spec("REV-35")
def test_axe_finds_nothing_and_nothing_is_cut_off(browser: Browser, address: str) -> None:
    with context(browser) as opened:
        page = opened.new_page()
        page.goto(address)
        paths = [*PAGES, *MORE]
        page.goto(at(address, "/policies"))
        paths += [page.get_by_role("link", name="from the previous one").get_attribute("href") or ""]
        paths += [page.locator("tbody th a").first.get_attribute("href") or ""]
        page.goto(at(address, "/approvals"))
        paths += [page.locator("tbody a.row").first.get_attribute("href") or ""]
        page.goto(at(address, "/decisions?q=covered:no"))
        paths += [
            page.locator("#rows a.row").first.get_attribute("href") or "",
            page.locator("#rows td a").nth(1).get_attribute("href") or "",
        ]
        for path in paths:
            page.goto(at(address, path))
            for width, scheme in LOOKS:
                _look(page, width, scheme)
                found = Axe().run(page).response["violations"]
                assert [
                    (path, width, scheme, one["id"], [node["html"] for node in one["nodes"]]) for one in found
                ] == []
                assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        page.goto(at(address, "/decisions?q=verdict:deny"))
        for width, scheme in LOOKS:
            _look(page, width, scheme)
            for closed in page.locator(".pop > summary").all():
                closed.click()
                assert page.evaluate("document.documentElement.scrollWidth") <= width, closed.inner_text()
                closed.click()


def _look(page: Page, width: int, scheme: Literal["light", "dark"]) -> None:
    page.set_viewport_size({"width": width, "height": 860})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is (scheme == "dark")


@pytest.mark.spec("REV-34")
def test_hostile_content_runs_on_no_page(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    bad = record("deny", subject=HOSTILE, session=HOSTILE, rule=HOSTILE, tool=HOSTILE, skipped=[HOSTILE])
    with Store.at(file) as store:
        keep(store, bad, record("deny", subject=LONG, session=LONG, tool=LONG, rule=LONG))
    with running("review", str(file), "--as", HOSTILE, "--role", "signer") as printed, context(browser) as opened:
        watching = Watch(printed)
        page = watching.on(opened.new_page())
        page.goto(printed)
        page.goto(at(printed, f"/decisions/{bad.id}"))
        page.get_by_label("ok", exact=True).check()
        page.get_by_label("Comment").fill(HOSTILE)
        page.get_by_role("button", name="Save", exact=True).click()
        session = page.locator(".crumbs a").nth(1).get_attribute("href") or ""
        for path in (*PAGES, "/charts", "/sign?q=verdict:deny", f"/decisions/{bad.id}", session):
            page.goto(at(printed, path))
            expect(page.locator("h1")).to_be_visible()
            assert page.locator("img, main script").count() == 0, path
            assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), path
        assert watching.wrong == []


@pytest.mark.spec("REV-1")
def test_it_reads_without_scripts(browser: Browser, address: str) -> None:
    opened = browser.new_context(java_script_enabled=False)
    page = opened.new_page()
    page.goto(address)
    page.get_by_role("link", name="Decisions").click()
    page.locator("#rows a.row").first.click()
    expect(page.locator("h1.sentence")).to_be_visible()
    opened.close()


@pytest.mark.spec("REV-26", "APR-13")
def test_an_approver_says_once_what_holds_for_more_and_takes_it_back(tmp_path: Path, browser: Browser) -> None:
    with asked(tmp_path):
        pass
    with (
        running("review", str(tmp_path / "s.sqlite3"), "--as", "alice", "--role", "signer") as printed,
        context(browser) as opened,
    ):
        watch = Watch(printed)
        page = watch.on(opened.new_page())
        page.goto(printed)
        page.goto(at(printed, "/approvals"))
        expect(page.get_by_text("A person decides.")).to_be_visible()
        page.get_by_label("What approving tool://_/pay is good for").select_option("value")
        page.get_by_role("button", name="Approve tool://_/pay").click()

        expect(page.get_by_role("heading", name="Standing approvals")).to_be_visible()
        expect(page.get_by_text("Stands for the same tool and values, for ann until")).to_be_visible()
        assert Axe().run(page).violations_count == 0
        page.get_by_role("button", name="Revoke tool://_/pay").click()

        expect(page.get_by_role("heading", name="Standing approvals")).to_have_count(0)
        assert watch.wrong == []
