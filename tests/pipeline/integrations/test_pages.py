"""What the pages of docs/integrations show is what happens."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.house.tree import ROOT
from tests.pipeline.conftest import write_rules

PAGES = ROOT / "docs" / "integrations"
NAMES = sorted(page.stem for page in PAGES.glob("*.md"))
OWN = {"openai_agents": "agents", "litellm": "litellm", "langchain": "langchain", "pydantic_ai": "pydantic_ai"}
ELSEWHERE = 'deny contains {"code": "mail.elsewhere", "reason": "No."} if contains(input.arguments.to, "elsewhere")'


def _echo(body: Any) -> str:
    return f"You said: {body['messages'][-1]['content']}"


def _httpx(_home: Path) -> dict[str, Any]:
    import httpx2
    from tests.pipeline.gateway import matrix_bodies

    from cmf.adapters import get
    from cmf.adapters.sse import sse_bytes

    def answer(request: Any) -> Any:
        body = json.loads(request.content)
        said = matrix_bodies.reply("openai_chat", "text", _echo(body))
        if not body.get("stream"):
            return httpx2.Response(200, json=said)
        adapter = get("openai_chat")
        events = adapter.to_wire_events(adapter.from_wire_response(said))
        return httpx2.Response(
            200, content=b"".join(map(sse_bytes, events)), headers={"content-type": "text/event-stream"}
        )

    return {"upstream": httpx2.MockTransport(answer)}


def _asgi(home: Path) -> dict[str, Any]:
    write_rules(home / "policy", {"mail": ELSEWHERE}, kinds="tool_call")
    return {}


def _pydantic_ai(_home: Path) -> dict[str, Any]:
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    def answer(messages: Any, _info: Any) -> Any:
        return ModelResponse(parts=[TextPart(f"You said: {messages[-1].parts[-1].content}")])

    return {"model": FunctionModel(answer)}


def _langchain(_home: Path) -> dict[str, Any]:
    from tests.pipeline.integrations.test_langchain import Played

    class Echo(Played):
        def _next(self, messages: Any) -> Any:
            self.script = [f"You said: {messages[-1].content}"]
            return super()._next(messages)

    return {"model": Echo(script=[])}


def _openai_agents(_home: Path) -> dict[str, Any]:
    import agents
    from agents.testing import ModelStep, ScriptedModel, assistant_message

    agents.set_tracing_disabled(True)
    model = ScriptedModel([ModelStep.respond(lambda call: [assistant_message(f"You said: {_last(call.input)}")])])

    class Provider(agents.ModelProvider):  # type: ignore[misc, name-defined]
        def get_model(self, model_name: str | None) -> Any:
            return model

    return {"provider": Provider()}


def _last(asked: Any) -> str:
    content = asked if isinstance(asked, str) else asked[-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


def _litellm(_home: Path) -> dict[str, Any]:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    return {"key": SimpleNamespace(user_id="ann", team_id=None)}


@contextmanager
def _loop() -> Iterator[None]:
    """For pages that run without one: a package's blocking call would make a loop that nobody closes."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()


PLAYED = {
    "httpx": _httpx,
    "asgi": _asgi,
    "pydantic_ai": _pydantic_ai,
    "langchain": _langchain,
    "openai_agents": _openai_agents,
    "litellm": _litellm,
    "pytest_plugin": lambda _: {},
}


@pytest.mark.spec("INT-1", "INT-10", "INT-20", "INT-30")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_what_happens(name: str, tmp_path: Path) -> None:
    if name in OWN:
        pytest.importorskip(OWN[name], reason="in an environment of its own")
    blocks = re.findall(r"```python\n(.*?)```", (PAGES / f"{name}.md").read_text(encoding="utf-8"), re.DOTALL)
    known = PLAYED[name](tmp_path)

    with chdir(tmp_path), _loop():
        for block in blocks:
            shown = io.StringIO()
            with redirect_stdout(shown):
                exec(block, known)
            assert shown.getvalue().splitlines() == re.findall(r"^# prints: (.*)$", block, re.MULTILINE)

    assert any("# prints: " in block for block in blocks)


def test_every_module_has_its_page_and_tests() -> None:
    modules = {file.stem for file in (ROOT / "src" / "pipeline" / "integrations").glob("*.py")}
    here = Path(__file__).parent

    assert modules - {"__init__", "asking", "turn"} == set(NAMES) == PLAYED.keys()
    assert all((here / f"test_{name}.py").is_file() for name in NAMES)
