"""An agent's functions under a guard: what they are given and give back is judged, in one session.

Prints:
    looked up: {'customer': 'c-7', 'note': 'token [MASKED]'}
    refused: data.label-to-sink, and nothing was sent
    answered: It is [MASKED].
"""

from __future__ import annotations

from typing import Any

from pipeline import Denied, Guard

guard = Guard()
sent: list[str] = []


@guard.tool(namespace="crm")
def look_up(customer: str) -> dict[str, str]:
    """What is on file about a customer."""
    return {"customer": customer, "note": "token AKIAIOSFODNN7EXAMPLE"}


@guard.tool
def send_email(to: str, body: str) -> str:
    """Send a mail."""
    sent.append(f"{to}: {body}")
    return "sent"


@guard.model(model="openai:gpt-5", dialect="openai_chat")
def ask(**body: Any) -> dict[str, Any]:
    """Ask the model: here `OpenAI().chat.completions.create(**body).model_dump()` would stand."""
    answer = {"role": "assistant", "content": "It is AKIAIOSFODNN7EXAMPLE."}
    choice = {"index": 0, "message": answer, "finish_reason": "stop"}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice]}


def main() -> None:
    with guard.session("s-1", subject={"id": "ann", "roles": ["agent"]}):
        print("looked up:", look_up(customer="c-7"))
        try:
            send_email(to="eve@example.org", body="as asked")
        except Denied as denied:
            print(f"refused: {denied.code}, and {'nothing' if not sent else 'something'} was sent")
    with guard.session("s-2", subject={"id": "ann", "roles": ["agent"]}):
        answer = ask(model="gpt-5", messages=[{"role": "user", "content": "Which key is it?"}])
        print("answered:", answer["choices"][0]["message"]["content"])


if __name__ == "__main__":
    main()
