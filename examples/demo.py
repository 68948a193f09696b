"""Four requests of one support session, judged part by part in this process: no server, no network.

Run it with `make demo`. It shows an allow, a deny for a missing role, a redaction (Anthropic in, OpenAI out), and a
label that makes a later call be denied.
"""

from __future__ import annotations

from pathlib import Path

from rich.rule import Rule

from cmf.adapters import loss
from pipeline import Guard, emit
from pipeline.cli.reading import read_context, read_traffic
from pipeline.cli.rendering import console, show_outcome

HERE = Path(__file__).parent
STEPS = (
    ("A question with a tool result: allowed", "openai_chat_question.json", "openai_chat", "openai_chat"),
    ("Deleting without the role admin: refused", "anthropic_messages_delete.json", "anthropic_messages", "openai_chat"),
    ("A key in the text: masked, and labelled", "anthropic_messages_secret.json", "anthropic_messages", "openai_chat"),
    ("Mail after a secret was seen: refused", "openai_chat_send.json", "openai_chat", "openai_chat"),
)


def main() -> None:
    """Judge each request under the shipped policies with the settings in `examples/policies`."""
    guard = Guard(HERE / "policies")
    context = read_context(HERE / "context.json", None)
    out = console()
    for number, (title, name, source, target) in enumerate(STEPS, start=1):
        out.print(Rule(f"{number}. {title}", align="left"))
        out.print(f"{name}: {source} in, {target} out")
        out.print()
        request = read_traffic(str(HERE / "requests" / name), source, "request")
        outcome = guard.run(request, context=context)
        with loss.collecting() as losses:
            wire = emit(outcome, target) if outcome.value is not None else None
        show_outcome(outcome, wire, target, losses)
        out.print()


if __name__ == "__main__":
    main()
