"""Four requests of one support session, judged part by part in this process: no server, no network.

Run it with `make demo`. It shows an allow, a deny for a missing role, a redaction (Anthropic in, OpenAI out), and a
label that makes a later call be denied.
"""

from __future__ import annotations

import json
from pathlib import Path

from cmf import adapters
from cmf.adapters.wire import loss
from cmf.json.codec import loads
from pipeline import Context, Guard, Outcome, emit

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
    context = Context.model_validate_json((HERE / "context.json").read_bytes())
    for number, (title, name, source, target) in enumerate(STEPS, start=1):
        print(f"{number}. {title}\n{name}: {source} in, {target} out\n")
        body = loads((HERE / "requests" / name).read_bytes())
        show(guard.run(adapters.get(source).from_wire_request(body), context=context), target)
        print()


def show(outcome: Outcome, target: str) -> None:
    """Print what was judged, what policy said of it, and what goes out."""
    decision = outcome.decision
    for view in decision.views:
        told = (view.path, view.kind, view.action, view.direction, view.uri or "")
        print(f"{view.verdict:<17} {'  '.join(told)}".rstrip())
        for hit in view.hits:
            print(f"{hit.effect:>24}  {hit.rule}  {hit.reason} [{hit.code}]")
    coverage = decision.coverage
    print(f"\nverdict   {decision.verdict}   action {decision.action}   {decision.id}")
    print(f"coverage  {coverage.evaluated} of {coverage.produced} views evaluated   revision {decision.revision[:12]}")
    if outcome.value is None:
        print("nothing goes out")
        return
    with loss.collecting() as losses:
        wire = emit(outcome, target)
    for one in losses:
        print(f"dropped   {one.block_type}: {one.reason}")
    print(f"goes out  {target}\n{json.dumps(wire, indent=2)}")


if __name__ == "__main__":
    main()
