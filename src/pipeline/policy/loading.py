"""Reading policies from directories, OPA bundles and inline text. Spec: docs/spec/policies.md [POL-1], [POL-2].

This module reads text and data and compiles nothing, so that a set can be vetted in a separate process.
"""

from __future__ import annotations

import gzip
import io
import itertools
import math
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, NoReturn, TypeAlias

import yaml

from cmf.errors import DecodeError
from cmf.json.codec import SAFE_INTEGER, loads
from pipeline.decisions.errors import PolicyError
from pipeline.policy import entrypoints
from pipeline.policy.bundle_signature import Verification, verify
from pipeline.policy.metadata import Module, load_yaml, package_of, yaml_problem
from pipeline.policy.rule_settings import DataFile
from pipeline.policy.rule_settings import problems as problems_of_settings
from pipeline.policy.shipped import WORD, missing, shipped

Data: TypeAlias = dict[str, Any]
Files: TypeAlias = dict[str, bytes]

DATA_FILES: Final = ("data.json", "data.yaml", "data.yml")
"""The data file names of an OPA bundle; a file's directory is its path under `data`."""

MANIFEST: Final = ".manifest"
SIGNATURES: Final = ".signatures.json"

MAX_BUNDLE_BYTES: Final = 64 * 1024 * 1024  # unpacked


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What was read: `modules` and `tests`, ordered by path, and the merged data document."""

    modules: tuple[Module, ...]
    tests: tuple[Module, ...]
    data: Data


def read(
    *places: str | Path | Mapping[str, bytes],
    inline: Mapping[str, str] | None = None,
    verification: Verification | None = None,
    problems: list[PolicyError] | None = None,
) -> Sources:
    """The sources in `places`, directories or bundles (`.tar.gz`); later places add to and replace earlier ones.

    Args:
        places: at least one. A mapping gives files that are in no directory, as contents by path. The word
            `"shipped"` names the directory of the shipped policies.
        inline: path → Rego from a caller other than the operator: it may add packages, never shadow them.
        verification: the keys that everything except the shipped policies must be signed with.
        problems: takes every setting that no rule can use, for whoever shows them all; else the first is raised.

    Raises:
        PolicyError: a file cannot be used, or a bundle's signature is not valid; the code says which.
    """
    modules: dict[str, Module] = {}
    tests: dict[str, Module] = {}
    data: Data = {}
    data_files: list[DataFile] = []
    for place in places:
        files = place if isinstance(place, Mapping) else _files(place_of(place), verification)
        if not files:
            hint = "put policies or data there, or leave it out"
            raise PolicyError("no policies found", path=str(place), hint=hint, code="policy.empty")
        for path, content in files.items():
            if path.endswith(".rego"):
                (tests if path.endswith("_test.rego") else modules)[path] = Module(path, text_of(content, path))
        _merge(data, data_of(files), "", replacing=True)
        data_files += [DataFile(path, text_of(files[path], path)) for path in files if _is_data(path)]
    modules = {path: module for path, module in modules.items() if not entrypoints.is_generated(module)}
    if not modules:
        named = ", ".join(str(place) for place in places if not isinstance(place, Mapping))
        raise PolicyError("no policies found", path=named, hint="put a .rego file there", code="policy.empty")
    _check_packages(modules.values())
    _check_tests(tests)
    library, settings = missing(modules.values(), data)
    modules |= {module.path: module for module in library}
    _merge(data, settings, "", replacing=True)
    added = _inline(inline or {}, modules.values(), data)
    ordered = sorted([*modules.values(), *added], key=lambda module: module.path)
    found = problems_of_settings(ordered, data, data_files)
    if problems is not None:
        problems += found
    elif found:
        raise found[0]
    return Sources(modules=tuple(ordered), tests=tuple(tests[path] for path in sorted(tests)), data=data)


def place_of(place: str | Path) -> Path:
    """The directory or bundle that `place` names. The string `shipped` names the shipped policies, not a directory."""
    return shipped() if place == WORD else Path(place)


def _files(place: Path, verification: Verification | None) -> Files:
    if place == shipped():
        return _tree(place)  # trusted as much as the installed package it is part of
    # With keys, a directory that is not a bundle counts as unsigned: removing its manifest gains nothing.
    return (
        _bundle(place, verification)
        if verification is not None
        or (place.is_file() or (place / MANIFEST).is_file() or (place / SIGNATURES).is_file())
        else _tree(place)
    )


def _check_tests(paths: Iterable[str]) -> None:
    for path in map(PurePosixPath, paths):
        if path.parent.name == path.stem:
            hint = "name the rule without `_test`: such a file is read as tests, and judges nothing"
            raise PolicyError(
                "this rule would be no rule", path=path.as_posix(), hint=hint, code="policy.reserved-name"
            )


def _check_packages(modules: Iterable[Module]) -> None:
    for module in modules:
        package = package_of(module)
        if f"{package}.".startswith((f"{entrypoints.MAIN}.", f"{entrypoints.EFFECT}.")):
            hint = "it is generated from the rules; use another package name"
            raise PolicyError(f"{package} is reserved", path=module.path, hint=hint, code="policy.reserved-name")


_DOTTED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_RESERVED: Final = re.compile(r"system(?:\.|$)|cmf(?:$|\.(?!rules\.))")
"""Packages that OPA reads as its own settings (`system.authz`, `system.log`), and those reserved for this project."""


def _inline(texts: Mapping[str, str], operator: Iterable[Module], data: Mapping[str, Any]) -> list[Module]:
    """A caller's modules: none may equal, contain or lie in a package or data path of the operator."""
    taken = {tuple(package_of(module).split(".")): module.path for module in operator}
    added = [*itertools.starmap(Module, texts.items())]
    _check_packages(added)
    for module in added:
        name = package_of(module)
        if _DOTTED.fullmatch(name) is None:  # `cmf["rules"]` is `cmf.rules` in disguise
            hint = "write it as names separated by dots"
            raise PolicyError(
                "the package path is not plain names", path=module.path, hint=hint, code="policy.bad-package"
            )
        package = tuple(name.split("."))
        clash = next((path for own, path in taken.items() if own[: len(package)] == package[: len(own)]), None)
        if clash is None and (module.path in taken.values() or _has_data(data, package)):
            clash = module.path
        if clash is not None:
            hint = "give it a package of its own"
            message = f"{name} belongs to the operator"
            raise PolicyError(message, path=module.path, hint=hint, code="policy.shadows-operator")
        if _RESERVED.match(name):
            hint = "put rules below cmf.rules, and anything else outside cmf and system"
            raise PolicyError(f"{name} is reserved", path=module.path, hint=hint, code="policy.reserved-name")
    return added


def _has_data(data: Mapping[str, Any], package: tuple[str, ...]) -> bool:
    value: Any = data
    for step in package:
        if not isinstance(value, Mapping) or step not in value:
            return not isinstance(value, Mapping)
        value = value[step]
    return True


# -- files -------------------------------------------------------------------------------------------------------------


def _tree(place: Path) -> Files:
    """The policies and data of a directory, by path; hidden files are skipped."""
    if not place.is_dir():
        raise PolicyError("no such directory", path=str(place), hint="name a directory", code="policy.no-directory")
    root = place.resolve()
    try:
        paths = list(_visible(root))
    except OSError as error:
        where, hint = error.filename or str(place), "check its permissions and its links"
        raise PolicyError("a directory cannot be read", path=where, hint=hint, code="policy.unreadable") from error
    return {path.relative_to(root).as_posix(): _content(path, root) for path in paths}


def below(folder: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """All paths below a directory, links to directories followed; none if `folder` is not a directory.

    Kubernetes volumes are made of such links. A link back to an ancestor is not followed. Raises OSError for a
    directory that cannot be read, because its files would be missed silently.
    """
    if not folder.is_dir():
        return
    real = folder.resolve()
    for path in folder.iterdir() if real not in above else ():
        yield path
        yield from below(path, (*above, real))


def _visible(root: Path) -> Iterator[Path]:
    for path in sorted(below(root)):
        place = path.relative_to(root)
        is_hidden = any(part.startswith(".") for part in place.parts)
        # A link that leads nowhere is an error when it is read; devices and pipes are no policies.
        if is_hidden or path.is_dir() or not (path.is_file() or path.is_symlink()):
            continue
        if path.name.endswith(".rego") or path.name in DATA_FILES:
            yield path
        elif _is_misnamed(place):
            hint = f"name it `<name>.rego`, or {', '.join(DATA_FILES)}; or take it out"
            raise PolicyError("nothing reads this file", path=place.as_posix(), hint=hint, code="policy.unread-file")


def _is_misnamed(place: Path) -> bool:
    """Whether a file was meant as policy or data: by its extension, and data by standing where settings are."""
    extension = place.suffix.lower()
    is_of_rules = place.parts[0] != "cmf" or place.parts[1] in ("rules", "lib")  # samples are there
    return extension == ".rego" or (extension in (".json", ".yaml", ".yml") and not is_of_rules)


def _content(path: Path, root: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        where = path.relative_to(root).as_posix()
        raise PolicyError("cannot be read", path=where, hint="check it", code="policy.unreadable") from error


def text_of(content: bytes, path: str) -> str:
    """The text of a file; PolicyError if it is not UTF-8."""
    try:
        # Some editors put a byte order mark before Rego, which OPA ignores too; JSON allows none.
        return content.decode("utf-8-sig" if path.endswith(".rego") else "utf-8")
    except UnicodeDecodeError as error:
        hint = "save it as UTF-8"
        raise PolicyError("cannot be read as UTF-8", path=path, hint=hint, code="policy.unreadable") from error


# -- bundles -----------------------------------------------------------------------------------------------------------


def bundle_files(place: Path) -> Files:
    """Every file of an OPA bundle, including manifest and signatures, unverified.

    Raises:
        PolicyError: not a `.tar.gz` (`policy.bad-bundle`), or no such path (`policy.no-directory`).
    """
    if not place.exists():
        raise PolicyError("no such bundle", path=str(place), hint="name one", code="policy.no-directory")
    if place.is_file():
        return _unpacked(place)
    root = place.resolve()
    return {
        path.relative_to(root).as_posix(): _content(path, root) for path in sorted(root.rglob("*")) if path.is_file()
    }


def _bundle(place: Path, verification: Verification | None) -> Files:
    """The policies and data of an OPA bundle, after checking its signature and manifest."""
    files = bundle_files(place)
    signatures = files.pop(SIGNATURES, None)
    if verification is not None:
        verify(files, signatures, verification)
    elif signatures is not None:
        hint = "give the key to verify it with"
        raise PolicyError(
            "the bundle is signed, but no key was given", path=str(place), hint=hint, code="policy.unverified"
        )
    _check_manifest(files)
    wanted = {path: content for path, content in files.items() if path.endswith(".rego") or _is_data(path)}
    return dict(sorted(wanted.items()))


def _is_data(path: str) -> bool:
    return PurePosixPath(path).name in DATA_FILES


def _unpacked(place: Path) -> Files:
    """The files of a `.tar.gz`; links, devices, duplicate names, names that lead out of it and bombs are refused."""
    files: Files = {}
    left = MAX_BUNDLE_BYTES
    try:
        with gzip.open(place) as packed:
            # Read up to the limit first: the sizes that an archive declares cannot be trusted.
            raw = packed.read(MAX_BUNDLE_BYTES + 1)
        if len(raw) > MAX_BUNDLE_BYTES:
            _bad_bundle(place, f"it unpacks to more than {MAX_BUNDLE_BYTES} bytes")
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
            for member in archive:
                name = str(PurePosixPath("/") / member.name).lstrip("/")
                if member.isdir():
                    continue
                content = archive.extractfile(member) if member.isreg() else None
                if content is None or ".." in PurePosixPath(name).parts or name in files:
                    _bad_bundle(place, "it holds a link, a duplicate name or a name that leads out of it")
                files[name] = content.read(left + 1)
                left -= len(files[name])
    except (OSError, EOFError, tarfile.TarError) as error:
        raise PolicyError(
            "not a bundle", path=str(place), hint="make it with `cmf bundle build`", code="policy.bad-bundle"
        ) from error
    return files


def _check_manifest(files: Files) -> None:
    manifest = _manifest(files.get(MANIFEST, b"{}"))
    if manifest.get("wasm") or any(path.endswith(".wasm") for path in files):
        _bad_bundle(MANIFEST, "it holds WebAssembly, which is not supported")
    if 0 in (manifest.get("rego_version"), *(manifest.get("file_rego_versions") or {}).values()):
        _bad_bundle(MANIFEST, "it is Rego v0", hint="rewrite it with `opa fmt --write --v0-v1`")
    roots = [tuple(filter(None, root.split("/"))) for root in manifest.get("roots") or [""]]
    for path, content in files.items():
        if path.endswith(".rego"):
            inside = [tuple(package_of(Module(path, text_of(content, path))).split("."))]
        elif _is_data(path):
            inside = _leaves(_data_value(text_of(content, path), path), PurePosixPath(path).parent.parts)
        else:
            continue
        if any(not any(leaf[: len(root)] == root for root in roots) for leaf in inside):
            _bad_bundle(path, "it is outside the roots in the manifest")


def _manifest(content: bytes) -> dict[str, Any]:
    try:
        value = loads(content)
    except DecodeError:
        value = None
    if not isinstance(value, dict):
        _bad_bundle(MANIFEST, "the manifest is not a JSON object")
    roots, versions = value.get("roots"), value.get("file_rego_versions")
    is_list = roots is None or (isinstance(roots, list) and all(isinstance(root, str) for root in roots))
    if not is_list or not (versions is None or isinstance(versions, dict)):
        _bad_bundle(MANIFEST, "the manifest is not a valid OPA manifest")
    return value


def _leaves(value: Any, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        return [leaf for key, item in value.items() for leaf in _leaves(item, (*path, key))]
    return [path] if path or not isinstance(value, dict) else []


def _bad_bundle(place: str | Path, message: str, hint: str = "build the bundle again") -> NoReturn:
    raise PolicyError(message, path=str(place), hint=hint, code="policy.bad-bundle")


# -- data --------------------------------------------------------------------------------------------------------------


def data_of(files: Mapping[str, bytes]) -> Data:
    """The data files among these, merged; PolicyError if one is not valid data."""
    own: Data = {}
    for path, content in files.items():
        if _is_data(path):
            value: Any = _data_value(text_of(content, path), path)
            for step in reversed(PurePosixPath(path).parent.parts):
                value = {step: value}
            _merge(own, value, path, replacing=False)
    return own


_JSON_PLACE: Final = re.compile(r" at line ([0-9]+) column ([0-9]+)$")


def _data_value(text: str, path: str) -> Data:
    try:
        value = loads(text) if path.endswith(".json") else load_yaml(text)
    except DecodeError as error:
        at = _JSON_PLACE.search(error.message)
        line, column = (int(at[1]), int(at[2])) if at is not None else (0, 0)
        where = f" ({error.path})" if error.path else ""
        reason = error.message.removeprefix("not JSON: ").removesuffix(at[0] if at is not None else "")
        message = f"not strict JSON: {reason}{where}"
        raise PolicyError(
            message, path=path, line=line, column=column, hint=error.hint, code="policy.bad-data"
        ) from error
    except yaml.YAMLError as error:
        line, _, problem = yaml_problem(error)
        message, hint = f"not YAML: {problem}", "correct it there"
        raise PolicyError(message, path=path, line=line, hint=hint, code="policy.bad-data") from error
    if not isinstance(value, dict):
        raise PolicyError("data is not an object", path=path, hint="write `key: value`", code="policy.bad-data")
    _check_json(value, path)
    return value


def _check_json(value: Any, path: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                _bad_data(path, f"a key is {type(key).__name__}, not a string")
            _check_json(item, path)
    elif isinstance(value, list):
        for item in value:
            _check_json(item, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value) or abs(value) > SAFE_INTEGER:
            _bad_data(path, "a number is beyond ±2^53, where engines lose precision")
    elif not (value is None or isinstance(value, str | bool)):
        _bad_data(path, f"a value is {type(value).__name__}, which JSON does not have")


def _bad_data(path: str, message: str) -> NoReturn:
    raise PolicyError(message, path=path, hint="write it as a string", code="policy.bad-data")


def _merge(target: Data, source: Data, path: str, *, replacing: bool) -> None:
    for key, item in source.items():
        if isinstance(item, dict) and isinstance(target.get(key), dict):
            _merge(target[key], item, path, replacing=replacing)
        elif key in target and not replacing:
            hint = "set each key in one file only"
            raise PolicyError(f"{key!r} is set in two files", path=path, hint=hint, code="policy.bad-data")
        else:
            target[key] = item
