"""Locating policies: a directory, or one at a git revision; and the file and line of a hit. Spec: docs/spec/cli.md.

What reads policies is imported when there is something to locate, so that help and completion are fast.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from pipeline.cli.options import SHIPPED, policy_place
from pipeline.decisions.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.decisions.decision import Hit
    from pipeline.policy.policy_set import PolicySet

GIT: Final = "git:"


def policy_directory(directory: Path) -> Path:
    """The policies of a project: its `policy` directory, or the directory itself."""
    inner = directory / "policy"
    return inner if inner.is_dir() else directory


def chosen(policies: list[Path] | None) -> list[Path] | None:
    """The named policies; by default those of the current project, which is noted on standard error."""
    here = Path("policy")
    if policies or not here.is_dir():
        return policies
    typer.echo(
        "cmf: using the project's own policies in policy/; give --policies shipped for the shipped ones", err=True
    )
    return [here]


@contextmanager
def policies_at(place: str, beside: str) -> Iterator[Path]:
    """The policy directory that `place` names, valid inside the block.

    `git:REV`, or `REV` if no file or directory has that name, is the directory `beside` at that revision, read from its
    repository without touching working tree or index.

    Raises:
        ConfigError: there is no such directory or revision, or git cannot be run (`config.no-revision`).
    """
    if not place.startswith(GIT) and _is_revision(place, beside):
        place = GIT + place
    if not place.startswith(GIT):
        if place != SHIPPED and not Path(place).exists():
            hint = "name a directory, or a commit in the repository of the other directory"
            raise _no_revision("no such directory or revision", place, hint)
        yield policy_directory(policy_place(place))
        return
    if beside.startswith(GIT):
        raise _no_revision("a revision needs a directory on the other side", place, "make --base or --head a directory")
    import io
    import tarfile
    import tempfile

    if not Path(beside).is_dir():
        raise _no_revision("no such directory", beside, "name a directory")
    commit = _commit(place.removeprefix(GIT), Path(beside), place)
    # `.`, because git archives relative to the directory it runs in.
    packed = _git(["archive", "--format=tar", commit, "."], Path(beside), place)
    with tempfile.TemporaryDirectory(prefix="cmf-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        yield policy_directory(Path(folder))


def _is_revision(place: str, beside: str) -> bool:
    """Whether `place` is not an existing path, but a commit in the repository of the directory `beside`."""
    if place == SHIPPED or Path(place).exists() or not Path(beside).is_dir():
        return False
    try:
        return bool(_commit(place, Path(beside), place))
    except ConfigError:
        return False


def _no_revision(message: str, path: str, hint: str) -> ConfigError:
    return ConfigError(message, path=path, hint=hint, code="config.no-revision")


def _commit(revision: str, directory: Path, place: str) -> str:
    asked = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    return _git(asked, directory, place).decode().strip()


def _git(arguments: list[str], directory: Path, place: str) -> bytes:
    try:
        command = ["git", "-C", str(directory), *arguments]
        done = subprocess.run(command, capture_output=True, check=True)  # noqa: S603 - no shell, no option from outside
    except (OSError, subprocess.CalledProcessError):
        hint = "name a revision in the repository of the other directory"
        raise _no_revision("git cannot resolve this revision", place, hint) from None
    return done.stdout


class Places:
    """Maps the rules of a set to files; `directories` is where it was loaded from, None for the shipped one."""

    def __init__(self, policies: PolicySet, directories: Sequence[Path] | None) -> None:
        self._rules = {rule.id: rule.path for rule in policies.rules}
        self._texts = dict(policies.modules)
        # A directory of data only extends the shipped rules, so rules not found elsewhere are shipped ones.
        self._directories = [policy_place(SHIPPED), *(directories or ())]

    def file(self, path: str) -> str:
        """The file that a module's path names; see `file_of`."""
        return file_of(path, self._directories)

    def of(self, hit: Hit) -> str:
        """`file:line` of the definition that produced `hit`; empty if it is not a rule of the set."""
        from pipeline.policy.analysis import line_of

        if (path := self._rules.get(hit.rule)) is None:
            return ""
        return f"{self.file(path)}:{line_of(self._texts[path], hit.effect.value, hit.code)}"


def file_of(path: str, directories: Sequence[Path]) -> str:
    """The file that a module's `path` names, relative to the current directory if below it; `path` if not found.

    A shipped file is written with `shipped:`, as in `shipped:cmf/rules/data/pii/pii.rego`.
    """
    file = next((place / path for place in reversed(directories) if (place / path).is_file()), None)
    ours = policy_place(SHIPPED)
    if file is None:
        return f"{SHIPPED}:{path}" if not Path(path).is_absolute() and (ours / path).is_file() else path
    here = Path.cwd()
    if file.is_relative_to(ours) and not ours.is_relative_to(here):
        return f"{SHIPPED}:{file.relative_to(ours).as_posix()}"
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
