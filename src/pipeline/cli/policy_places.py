"""Where policies are: a directory, or one as it was at a revision; of a hit, file and line. Spec: docs/spec/cli.md."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import typer

from pipeline import policy_set
from pipeline.decision import Hit
from pipeline.errors import ConfigError
from pipeline.policies.library import WORD
from pipeline.policies.metadata import Module
from pipeline.policy_set import PolicySet

GIT: Final = "git:"


def policy_directory(directory: Path) -> Path:
    """Where the policies of a project are: its `policy` directory, or itself."""
    inner = directory / "policy"
    return inner if inner.is_dir() else directory


def chosen(policies: Sequence[Path] | None) -> Sequence[Path] | None:
    """The policies that were named; without any, those of the project that is here, which standard error says."""
    here = Path("policy")
    if policies or not here.is_dir():
        return policies
    typer.echo("cmf: by the project's own policies, in policy; --policies shipped for the shipped ones", err=True)
    return [here]


@contextmanager
def policies_at(place: str, beside: str) -> Iterator[Path]:
    """The policy directory that `place` names, until the end of the block.

    `git:REV`, and `REV` where no file or directory has that name, is the directory `beside` as it was at that revision:
    read from the repository that it is in, whose files and index are left alone.

    Raises:
        ConfigError: there is no such directory or revision, or git cannot be asked (`config.no-revision`).
    """
    if not place.startswith(GIT) and _is_revision(place, beside):
        place = GIT + place
    if not place.startswith(GIT):
        if place != WORD and not Path(place).exists():
            hint = "name a directory, or a commit of the repository that the other one is in"
            raise ConfigError("no such directory or revision", path=place, hint=hint, code="config.no-revision")
        yield policy_set.shipped() if place == WORD else policy_directory(Path(place))
        return
    if beside.startswith(GIT):
        hint = "give one of --base and --head as a directory"
        raise ConfigError("a revision of what directory?", path=place, hint=hint, code="config.no-revision")
    packed = _archive(place.removeprefix(GIT), Path(beside), place)
    with tempfile.TemporaryDirectory(prefix="cmf-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        yield policy_directory(Path(folder))


def _is_revision(place: str, beside: str) -> bool:
    """Whether `place` names nothing that is here, and a commit of the repository that the directory `beside` is in."""
    if place == WORD or Path(place).exists() or not Path(beside).is_dir():
        return False
    try:
        return bool(_commit(place, Path(beside), place))
    except ConfigError:
        return False


def _archive(revision: str, directory: Path, place: str) -> bytes:
    """The directory at that revision, as a tar archive."""
    if not directory.is_dir():
        raise ConfigError("no such directory", path=str(directory), hint="name a directory", code="config.no-revision")
    commit = _commit(revision, directory, place)
    # `.` is the directory itself: git archives what is below where it is called.
    return _git(["archive", "--format=tar", commit, "."], directory, place)


def _commit(revision: str, directory: Path, place: str) -> str:
    asked = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    return _git(asked, directory, place).decode().strip()


def _git(arguments: list[str], directory: Path, place: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(directory), *arguments], capture_output=True, check=True)  # noqa: S603, S607
    except (OSError, subprocess.CalledProcessError):
        hint = "name a revision of the repository that the other directory is in"
        raise ConfigError("git does not know this revision", path=place, hint=hint, code="config.no-revision") from None
    return done.stdout


class Places:
    """Where the rules of a set are defined.

    Args:
        policies: the set. directories: what it was loaded from; None for the shipped one.
    """

    def __init__(self, policies: PolicySet, directories: Sequence[Path] | None) -> None:
        self._rules = {rule.id: rule.path for rule in policies.rules}
        self._modules = {module.path: module for module in policies.modules}
        # Data alone goes over the shipped rules, so that is where a rule is if it is nowhere else.
        self._directories = [policy_set.shipped(), *(directories or ())]

    def file(self, path: str) -> str:
        """The file that a module's path names; see `file_of`."""
        return file_of(path, self._directories)

    def of(self, hit: Hit) -> str:
        """`file:line` of the definition that gave `hit`; empty for what is no rule of the set."""
        path = self._rules.get(hit.rule)
        if path is None:
            return ""
        return f"{self.file(path)}:{_line(self._modules[path], hit)}"


def file_of(path: str, directories: Sequence[Path]) -> str:
    """The file of a set that `path` names, from here where it is below here; the path itself where it is in none.

    What comes with the package is `shipped:` and its path in there: `shipped:cmf/rules/data/pii/pii.rego`.
    """
    found = next((place / path for place in reversed(directories) if (place / path).is_file()), None)
    ours = policy_set.shipped()
    if found is None:
        return f"{WORD}:{path}" if not Path(path).is_absolute() and (ours / path).is_file() else path
    here = Path.cwd()
    if found.is_relative_to(ours) and not ours.is_relative_to(here):
        return f"{WORD}:{found.relative_to(ours).as_posix()}"
    return str(found.relative_to(here) if found.is_relative_to(here) else found)


_DEFINITION: Final = re.compile(r"^(?P<effect>[a-z_]+)\s+contains\b", re.MULTILINE)
_PACKAGE: Final = re.compile(r"^package\b", re.MULTILINE)


def _line(module: Module, hit: Hit) -> int:
    """The line of the definition of the hit's effect that names its code; of the package where that is not told."""
    text = module.text
    defined = [match for match in _DEFINITION.finditer(text) if match["effect"] == hit.effect.value]
    ends = [match.start() for match in _DEFINITION.finditer(text)] + [len(text)]
    named = [
        match
        for match in defined
        if f'"{hit.code}"' in text[match.start() : min(end for end in ends if end > match.start())]
    ]
    best = (named or defined or list(_PACKAGE.finditer(text)))[:1]
    return text.count("\n", 0, best[0].start()) + 1 if best else 1


__all__ = ["Places", "chosen", "file_of", "policies_at", "policy_directory"]
