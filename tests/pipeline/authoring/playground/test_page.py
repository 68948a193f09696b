"""The playground's page in a real browser."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect
from tests.pipeline.authoring.playground.states import PATH, RULE
from tests.pipeline.browser import REBOUND, Watch, context, running
from typer.testing import CliRunner

from pipeline.cli.app import app

pytestmark = [pytest.mark.chromium, pytest.mark.native, pytest.mark.slow, pytest.mark.no_cover]

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> javascript:alert(3) \u202etxt.exe\u2066 https://evil.example/x.png"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of one rule and one case."""
    project = tmp_path_factory.mktemp("project")
    (project / "policy" / PATH).parent.mkdir(parents=True)
    (project / "policy" / PATH).write_text(RULE)
    (project / "cases").mkdir()
    (project / "cases" / "first.yaml").write_text(
        "cases: [{name: first, conversation: [{role: user, text: say xyzzy}], expect: deny}]\n"
    )
    return project


@pytest.fixture(scope="module")
def address(directory: Path) -> Iterator[str]:
    with running("playground", directory=directory) as printed:
        yield printed


@pytest.fixture
def page(browser: Browser, address: str, watch: Watch) -> Iterator[Page]:
    """The page, with the case of the project judged."""
    with context(browser) as opened:
        shown = watch.on(opened.new_page())
        shown.goto(address)
        expect(shown.locator("#verdict")).to_have_text("allow")
        shown.select_option("#sample", label="first")
        expect(shown.locator("#verdict")).to_have_text("deny")
        yield shown


@pytest.mark.spec("PLAY-1")
@pytest.mark.spec("CLI-11")
def test_it_judges_what_it_begins_with_and_what_is_typed(page: Page) -> None:
    expect(page.locator("#decision-body .hits li").first).to_contain_text("words/forbidden")

    page.fill("#conversation-text", "- {role: user, text: say hello}")
    expect(page.locator("#verdict")).to_have_text("allow")
    page.fill("#policy-text", RULE.replace("xyzzy", "hello"))
    expect(page.locator("#verdict")).to_have_text("deny")
    page.select_option("#format", "openai_chat")
    expect(page.locator("#verdict")).to_have_text("not judged")
    page.fill("#conversation-text", '{"model": "m", "messages": [{"role": "user", "content": "hi"}]}')
    expect(page.locator("#verdict")).to_have_text("allow")


@pytest.mark.spec("PLAY-1")
def test_it_judges_300_ms_after_the_last_key_and_at_once_with_ctrl_and_enter(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/" in request.url else None)
    page.clock.install(time=0)
    page.clock.pause_at(1)

    page.fill("#conversation-text", "- {role: user, text: one}")
    page.clock.run_for(299)
    page.fill("#conversation-text", "- {role: user, text: two}")
    page.clock.run_for(299)
    assert asked == []
    with page.expect_response("**/api/evaluate"):
        page.clock.run_for(1)
    with page.expect_response("**/api/evaluate"):
        page.keyboard.press("Control+Enter")
    assert len(asked) == 2


@pytest.mark.spec("PLAY-1")
def test_an_answer_that_is_overtaken_is_not_shown(page: Page) -> None:
    held: list[Route] = []
    page.route("**/api/evaluate", lambda route: held.append(route))
    for number, word in enumerate(("xyzzy", "hello"), 1):
        page.fill("#conversation-text", f"- {{role: user, text: {word}}}")
        page.keyboard.press("Control+Enter")
        while len(held) < number:
            page.wait_for_timeout(10)

    held[1].continue_()
    expect(page.locator("#verdict")).to_have_text("allow")
    with page.expect_response("**/api/evaluate") as overtaken:
        held[0].continue_()

    assert overtaken.value.json()["verdict"] == "deny"
    page.evaluate("() => new Promise(requestAnimationFrame)")
    expect(page.locator("#verdict")).to_have_text("allow")


@pytest.mark.spec("PLAY-1")
def test_a_text_over_60_000_characters_is_not_coloured(page: Page) -> None:
    below = page.locator("#policy-editor .below")
    for length, coloured in ((60_000, True), (60_001, False)):
        page.fill("#policy-text", "# comment\n".ljust(length, "x"))
        assert (below.locator(".is-comment").count() > 0) is coloured


@pytest.mark.spec("PLAY-1")
def test_colours_lie_below_exactly_what_is_typed(page: Page) -> None:
    text = '# a comment\npackage a.b\n\n\tdeny if input.content == "<b>&" # 1\nn := 12\n' + "x" * 300
    page.fill("#policy-text", text)

    below = page.locator("#policy-editor .below")
    assert below.evaluate("each => each.textContent") == text + "\n\n"
    assert below.locator(".is-text").all_inner_texts() == ['"<b>&"']
    assert below.locator(".is-word").all_inner_texts() == ["package", "if"]
    assert below.locator(".is-number").all_inner_texts() == ["12"]
    assert below.locator(".is-comment").all_inner_texts() == ["# a comment", "# 1"]
    page.locator("#policy-text").evaluate("each => { each.scrollLeft = 400; each.dispatchEvent(new Event('scroll')); }")
    assert (
        below.evaluate("each => each.scrollLeft")
        == page.locator("#policy-text").evaluate("each => each.scrollLeft")
        > 0
    )
    boxes = page.evaluate("""() => ['.below', 'textarea'].map((name) => {
        const box = document.querySelector('#policy-editor ' + name);
        const style = getComputedStyle(box);
        return [style.font, style.lineHeight, style.paddingLeft, style.tabSize, style.whiteSpace, box.offsetLeft];
    })""")
    assert boxes[0] == boxes[1]


@pytest.mark.spec("PLAY-5")
def test_lines_that_were_reached_are_marked_and_those_that_were_not(page: Page) -> None:
    page.fill("#conversation-text", "- {role: user, text: say hello}")
    expect(page.locator("#verdict")).to_have_text("allow")

    expect(page.locator("#policy-editor .gutter .reached").first).to_be_visible()
    assert page.locator("#policy-editor .gutter .missed").all_inner_texts() == ["○ 9", "○ 11"]
    page.get_by_text("Why not: 1 asked without a hit").wait_for()
    expect(page.locator(".stop")).to_contain_text(
        'contains(input.content, "xyzzy") 0 of 3 holdinput.content was "say hello"'
    )


@pytest.mark.spec("PLAY-4")
def test_a_mistake_is_shown_at_its_place_and_leads_there(page: Page) -> None:
    page.fill("#policy-text", RULE.replace("} if {", "} if if {"))

    expect(page.locator("#verdict")).to_have_text("not judged")
    place = page.locator("#policy-problems button")
    expect(place).to_contain_text(f"{PATH}:9:")
    expect(page.locator("#policy-editor .gutter .wrong")).to_contain_text("9")
    page.focus("#sample")
    place.click()
    assert page.evaluate("document.activeElement.id") == "policy-text"
    assert page.evaluate(_LINE) == 9

    page.fill("#policy-text", RULE)
    page.fill("#conversation-text", "- {role: user, text: [")
    expect(page.locator("#decision-body button.place")).to_have_text(re.compile(r"^conversation:1:\d+$"))


_LINE = "(({value, selectionStart}) => value.slice(0, selectionStart).split('\\n').length)(document.activeElement)"


@pytest.mark.spec("PLAY-7")
def test_what_is_on_the_page_becomes_a_case_that_passes(page: Page, directory: Path) -> None:
    page.fill("#conversation-text", "- {role: user, text: 'xyzzy, says \u202e nobody'}")
    page.fill("#context-text", "subject: {id: ann, roles: [editor]}")
    expect(page.locator("#decision-body .hits li").first).to_contain_text("words/forbidden")

    page.click("#save")
    page.fill("#case-name", "nobody says it")
    page.keyboard.press("Enter")

    expect(page.locator("#said")).to_have_text("Saved as cases/nobody-says-it.yaml; it passes")
    tested = CliRunner().invoke(app, ["test", str(directory), "--format", "json"])
    assert tested.exit_code == 0, tested.stdout
    assert "nobody says it" in [case["name"] for case in json.loads(tested.stdout)["cases"]]


@pytest.mark.spec("PLAY-8")
def test_a_link_restores_everything_and_holds_no_token(page: Page, address: str, watch: Watch) -> None:
    page.fill("#conversation-text", "- {role: user, text: 'xyzzy é 漢字 \u202e'}")
    page.fill("#context-text", "subject: {id: ann}")
    page.fill("#policy-text", f"{RULE}# shared\n")
    expect(page.locator("#decision-body .hits li").first).to_contain_text("words/forbidden")

    page.click("#copy-link")
    expect(page.locator("#said")).to_contain_text("no token")
    page.fill("#context-text", "")
    page.focus("#context-text")
    page.keyboard.press("Control+V")
    link = page.input_value("#context-text")

    token = urlsplit(address).fragment.removeprefix("t=")
    assert token not in link
    assert urlsplit(link).path == "/"
    other = watch.on(page.context.new_page())
    other.goto(link)
    expect(other.locator("#verdict")).to_have_text("deny")
    assert other.input_value("#conversation-text") == "- {role: user, text: 'xyzzy é 漢字 \u202e'}"
    assert other.input_value("#context-text") == "subject: {id: ann}"
    assert other.input_value("#policy-text").endswith("# shared\n")
    other.reload()
    expect(other.locator("#verdict")).to_have_text("deny")


@pytest.mark.spec("PLAY-8")
@pytest.mark.parametrize("shared", ["nonsense", "AAAA", "S0ktLlGoBgA", "%%%"])
def test_a_damaged_link_is_reported_and_a_sample_shown(
    browser: Browser, address: str, watch: Watch, shared: str
) -> None:
    with context(browser) as opened:
        page = watch.on(opened.new_page())
        page.goto(f"{address}&s={shared}")

        expect(page.locator("#verdict")).to_have_text("allow")
        expect(page.locator("#said")).to_contain_text("damaged")


@pytest.mark.spec("PLAY-8")
def test_a_link_that_unpacks_to_far_more_than_itself_is_not_opened(page: Page) -> None:
    """64 MB of one letter pack to 64 KB."""
    bomb = page.evaluate(
        """async () => {
          const stream = new Blob([JSON.stringify({files: [], conversation: "x".repeat(6e7)})]).stream()
            .pipeThrough(new CompressionStream("deflate-raw"));
          const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
          return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""))
            .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
        }"""
    )
    page.evaluate("(text) => { location.hash = `s=${text}`; }", bomb)

    expect(page.locator("#said")).to_contain_text("damaged")


@pytest.mark.spec("PLAY-9")
def test_hostile_words_never_run_and_are_shown_as_they_are(page: Page, watch: Watch) -> None:
    """In conversation, subject, reasons, details, labels, titles, names of files, problems and links."""
    rule = RULE.replace("A forbidden word", json.dumps(HOSTILE)).replace(
        '"reason": "This may not be said.", "detail": {"role": input.role}',
        f'"reason": {json.dumps(HOSTILE)}, "detail": {{{json.dumps(HOSTILE)}: input.content}}',
    )
    rule += f'\nlabel contains {{"code": "x", "reason": "x", "label": {json.dumps(HOSTILE)}}}\n'
    page.fill("#context-text", json.dumps({"subject": {"id": HOSTILE}, "session": {"labels": [HOSTILE]}}))
    page.fill("#policy-text", rule)
    page.fill("#conversation-text", json.dumps([{"role": "user", "text": f"xyzzy {HOSTILE}"}]))
    expect(page.locator("#decision-body .hits li").first).to_contain_text("<script>alert(1)</script>")
    assert page.locator("#views-body").inner_text().count("alert(2)") >= 1

    page.fill("#conversation-text", json.dumps([{"role": HOSTILE}]))
    expect(page.locator("#verdict")).to_have_text("not judged")
    page.click("#new-file")
    page.fill("#file-path", HOSTILE)
    page.click("#file-form button")
    expect(page.locator("#policy-problems")).to_contain_text("not the path of a policy file")
    page.reload()
    expect(page.locator("#verdict")).to_have_text("not judged")

    shown = page.locator("#views-body, #decision-body, #policy-problems, #said").all_inner_texts()
    assert not any("\u202e" in text or "\u2066" in text for text in shown)
    assert page.locator("main img, main script, main iframe, main a[href]").count() == 0
    assert watch.wrong == []


@pytest.mark.spec("PLAY-5")
def test_a_value_copies_its_reference(page: Page) -> None:
    page.get_by_role("button", name="input.content", exact=False).first.click()
    expect(page.locator("#said")).to_have_text("Copied input.content")

    page.fill("#context-text", "")
    page.focus("#context-text")
    page.keyboard.press("Control+V")
    assert page.input_value("#context-text") == "input.content"


@pytest.mark.spec("PLAY-13")
def test_the_whole_journey_needs_no_mouse(page: Page, directory: Path) -> None:
    page.reload()
    expect(page.locator("#verdict")).to_have_text("deny")
    _tab_to(page, "#sample")
    page.keyboard.press("End")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#verdict")).to_have_text("allow")
    _tab_to(page, "#policy-text")
    page.keyboard.press("Control+End")
    page.keyboard.type("# typed")
    _tab_to(page, "#conversation-text")
    page.keyboard.press("Control+A")
    page.keyboard.type("- {role: user, text: xyzzy}")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#verdict")).to_have_text("deny")
    _tab_to(page, ".values button")
    page.keyboard.press("Enter")
    expect(page.locator("#said")).to_contain_text("Copied input.")
    _tab_to(page, "#save")
    page.keyboard.press("Enter")
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    expect(page.locator("#said")).to_contain_text("Saved as cases/by-keyboard.yaml")
    assert (directory / "cases" / "by-keyboard.yaml").exists()
    _tab_to(page, "#decision-body .place")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "policy-text"


def _tab_to(page: Page, selector: str) -> None:
    """Press Tab until the focus is there; nothing on the way may hold it."""
    for _ in range(80):
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"{selector} cannot be reached")


@pytest.mark.spec("PLAY-13")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_and_nothing_is_cut_off(
    browser: Browser, address: str, watch: Watch, width: int, scheme: str
) -> None:
    with context(browser, width=width, scheme=scheme) as opened:
        page = watch.on(opened.new_page())
        page.goto(address)
        for text in ("say hello", "say xyzzy"):
            page.fill("#conversation-text", f"- {{role: user, text: {text}}}")
            expect(page.locator("#verdict")).to_have_text("deny" if "xyzzy" in text else "allow")
            _accessible(page)
        page.click("#save")
        page.fill("#policy-text", "package")
        expect(page.locator("#verdict")).to_have_text("not judged")
        _accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        cut = (
            "(all) => all.filter((each) => each.offsetParent && each.getBoundingClientRect().right > innerWidth).length"
        )
        assert page.locator("button, select, input, textarea").evaluate_all(cut) == 0


def _accessible(page: Page) -> None:
    found = Axe().run(page).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []


@pytest.mark.spec("PLAY-10")
def test_a_name_that_was_turned_on_this_machine_shows_nothing(browser: Browser, address: str) -> None:
    port = urlsplit(address).port
    with context(browser) as opened:
        page = opened.new_page()
        answer = page.goto(f"http://{REBOUND}:{port}/")

        assert answer is not None
        assert answer.status == 421


@pytest.mark.spec("PLAY-10")
def test_another_local_page_cannot_ask_even_if_it_knows_the_token(browser: Browser, address: str) -> None:
    token = urlsplit(address).fragment.removeprefix("t=")
    ask = """async ([url, token]) => {
      const options = {method: "POST", headers: {"x-cmf-token": token, "content-type": "application/json"}, body: "{}"};
      try { return (await fetch(`${url}/api/evaluate`, options)).status; } catch { return "refused"; }
    }"""
    with context(browser) as opened, HTTPServer(("127.0.0.1", 0), _Plain) as another:
        threading.Thread(target=another.serve_forever, daemon=True).start()
        page = opened.new_page()
        page.goto(f"http://127.0.0.1:{another.server_port}/")

        assert page.evaluate(ask, [f"http://127.0.0.1:{another.server_port}", token]) == 501  # it may ask itself
        assert page.evaluate(ask, [address.partition("/#")[0], token]) == "refused"
        another.shutdown()


class _Plain(BaseHTTPRequestHandler):
    """A page of another program on this machine, without any policy of its own."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.mark.spec("PLAY-10")
def test_without_the_token_the_page_says_what_to_do(browser: Browser, address: str) -> None:
    with context(browser) as opened:
        page = opened.new_page()
        page.goto(address.partition("#")[0])

        expect(page.locator("#notice")).to_have_text("Open the URL that `cmf playground` printed.")


@pytest.mark.spec("PLAY-7")
@pytest.mark.spec("CLI-11")
def test_readonly_offers_no_saving(browser: Browser, directory: Path) -> None:
    with (
        running("playground", "--readonly", "--policies", str(directory), directory=directory) as printed,
        context(browser) as opened,
    ):
        page = opened.new_page()
        page.goto(printed)
        expect(page.locator("#verdict")).to_have_text("allow")

        expect(page.locator("#save")).to_be_hidden()
