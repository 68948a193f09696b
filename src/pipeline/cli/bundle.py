"""`cmf bundle`: building, signing, verifying and inspecting OPA bundles. Spec: docs/spec/cli.md [CLI-7] ff."""

from __future__ import annotations

import contextlib
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from pipeline.cli.groups import command_group
from pipeline.cli.options import AlgorithmOption, OutputAs, PolicyOption
from pipeline.cli.policy_places import chosen
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.cli.rendering import console, write_json
from pipeline.decisions.display import counted, visible
from pipeline.decisions.errors import PolicyError

if TYPE_CHECKING:
    from pipeline.policy.bundle_signature import SigningKey
    from pipeline.policy.loading import Files
    from pipeline.policy.policy_set import PolicySet

ARCHIVES: Final = (".tar.gz", ".tgz")
Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A directory, or a .tar.gz.")]
PrivateKey = Annotated[
    Path, typer.Option("--signing-key", metavar="FILE", help="The private key in PEM; for HS…, the secret.")
]
KeyId = Annotated[str, typer.Option("--key-id", help="The key's id in OPA's configuration.")]
Scope = Annotated[str, typer.Option("--scope", help="The signature's scope.")]
command = command_group("Policy sets as OPA bundles.")


@command.command("build")
def build(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new directory, or a new .tar.gz.")],
    policies: PolicyOption = None,
    key: Annotated[
        Path | None,
        typer.Option("--signing-key", metavar="FILE", help="Sign it: the private key in PEM; for HS…, the secret."),
    ] = None,
    algorithm: AlgorithmOption = "RS256",
    key_id: KeyId = "",
    scope: Scope = "",
) -> None:
    """Write a policy set as an OPA bundle: `opa run --server --bundle OUT` then serves it.

    Exit codes: 0 written, 2 usage, 3 policy or key cannot be used.
    """
    from pipeline.policy.bundle_signature import packed, sign
    from pipeline.policy.loading import SIGNATURES
    from pipeline.run.assembly import load_policies

    signing = None if key is None else _signing_key(key, algorithm, key_id, scope)
    policies = chosen(policies)
    with one_line_errors(policies=policies or ()):
        loaded = load_policies(policies)
        files = loaded.bundle()
        if signing is not None:
            files[SIGNATURES] = sign(files, signing)
    if out.name.endswith(ARCHIVES):
        if out.exists():
            fail(f"{out}: already exists; give a new name", Exit.USAGE)
        _replace(out, packed(files))
    else:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            fail(f"{out}: not an empty directory; give a new name", Exit.USAGE)
        for name, content in files.items():
            _replace(out / name, content)
    typer.echo(f"{out}: revision {loaded.revision}{'' if signing is None else f', signed with {signing.algorithm}'}")


@command.command("sign")
def sign_in_place(
    bundle: Bundle, key: PrivateKey, algorithm: AlgorithmOption = "RS256", key_id: KeyId = "", scope: Scope = ""
) -> None:
    """Sign a bundle in place, as `opa sign` does.

    Exit codes: 0 signed, 2 usage, 3 bundle or key cannot be used.
    """
    from pipeline.policy.bundle_signature import packed, sign
    from pipeline.policy.loading import MANIFEST, SIGNATURES, bundle_files

    signing = _signing_key(key, algorithm, key_id, scope)
    with one_line_errors():
        files = bundle_files(bundle)
        files.pop(SIGNATURES, None)
        if MANIFEST not in files:
            fail(f"{bundle}: not a bundle, it has no {MANIFEST}; build one with `cmf bundle build`", Exit.USAGE)
        files[SIGNATURES] = sign(files, signing)
    if bundle.is_dir():
        _replace(bundle / SIGNATURES, files[SIGNATURES])
    else:
        _replace(bundle, packed(files))
    typer.echo(f"{bundle}: {counted(len(files) - 1, 'file')} signed with {signing.algorithm}")


@command.command("verify")
def verify_signature(
    bundle: Bundle,
    key: Annotated[
        Path,
        typer.Option("--public-key", metavar="FILE", help="The public key or certificate in PEM; for HS…, the secret."),
    ],
    algorithm: AlgorithmOption = "RS256",
    scope: Scope = "",
) -> None:
    """Report whether this key signed exactly the content of a bundle.

    Exit codes: 0 it did, 1 it did not, 2 usage, 3 bundle or key cannot be used.
    """
    from pipeline.policy import policy_set
    from pipeline.policy.bundle_signature import Key, Verification, verify
    from pipeline.policy.loading import SIGNATURES, bundle_files

    with one_line_errors():
        verification = Verification({"key": Key.at(key, algorithm=algorithm, scope=scope)}, key_id="key")
    try:
        with one_line_errors():
            files = bundle_files(bundle)
        signatures = files.pop(SIGNATURES, None)
        verify(files, signatures, verification)
    except PolicyError as error:
        fail(f"{bundle}: {error}", Exit.REFUSED if error.code == "policy.bad-signature" else Exit.POLICY)
    with one_line_errors():
        loaded = policy_set.load(bundle, verification=verification)
    typer.echo(f"{bundle}: signed by this key; {counted(len(files), 'file')}, revision {loaded.revision}")


@command.command("inspect")
def inspect(bundle: Bundle, output: OutputAs = "text") -> None:
    """Show the content of a bundle: revision, roots, signature, rules, files.

    Exit codes: 0 shown, 3 bundle cannot be used.
    """
    from pipeline.policy import policy_set
    from pipeline.policy.loading import DATA_FILES, MANIFEST, SIGNATURES, bundle_files

    with one_line_errors():
        files = bundle_files(bundle)
        signatures = files.pop(SIGNATURES, None)
        signature = None if signatures is None else _signature(signatures)
        policies = {
            name: content
            for name, content in files.items()
            if name.endswith(".rego") or name.rpartition("/")[2] in DATA_FILES
        }
        loaded = policy_set.load(policies)  # a set without rules too
    try:
        manifest = json.loads(files.get(MANIFEST, b"{}"))
    except ValueError:
        manifest = None
    stated = manifest.get("revision") if isinstance(manifest, dict) else None
    if output == "json":
        write_json(_document(loaded, files, manifest, signature))
        return
    out = console()
    says = f"the manifest says {visible(str(stated)) if stated else 'none'}"
    fits = "as it says" if stated == loaded.revision else says
    out.print(Text.assemble("revision   ", (loaded.revision, "bold"), f"  ({fits})"))
    if isinstance(manifest, dict) and manifest.get("roots"):
        out.print(f"roots      {', '.join(visible(str(root)) for root in manifest['roots'])}")
    described = "none"
    if signature is not None:
        named = "" if signature["key_id"] is None else f", key {visible(str(signature['key_id']))}"
        scope = "" if signature["scope"] is None else f", for {visible(str(signature['scope']))}"
        of = counted(signature["files"], "file")
        described = f"{visible(signature['algorithm'])}{named}{scope}, of {of} (not verified)"
    out.print(f"signature  {described}")
    for rule in loaded.rules:
        line = f"{rule.id}  {rule.severity}  {rule.mode.value}  {visible(rule.title)}"
        out.print(Text.assemble("rule       ", line))
    for exception in loaded.exceptions:
        out.print(f"exception  {visible(exception.rule)} until {exception.until}, {visible(exception.owner)}")
    for name, content in sorted(files.items()):
        out.print(Text(f"{len(content):>9}  {visible(name)}", "dim"))


def _document(loaded: PolicySet, files: Files, manifest: Any, signature: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "revision": loaded.revision,
        "manifest": manifest,
        "signature": signature,
        "rules": [
            {"id": rule.id, "title": rule.title, "severity": rule.severity, "mode": rule.mode.value}
            for rule in loaded.rules
        ],
        "exceptions": len(loaded.exceptions),
        "files": {name: len(content) for name, content in sorted(files.items())},
    }


def _signature(signatures: bytes) -> dict[str, Any]:
    from pipeline.policy.bundle_signature import claims

    header, payload = claims(signatures)
    named = payload.get("files")
    return {
        "algorithm": str(header.get("alg")),
        "key_id": header.get("kid") or payload.get("keyid"),
        "scope": payload.get("scope"),
        "files": len(named) if isinstance(named, list) else 0,
    }


def _signing_key(path: Path, algorithm: str, key_id: str, scope: str) -> SigningKey:
    """Read the key from a file."""
    from pipeline.policy.bundle_signature import SigningKey, key_text

    with one_line_errors():
        return SigningKey(key_text(path), algorithm=algorithm, key_id=key_id, scope=scope)


def _replace(path: Path, content: bytes) -> None:
    """Write the file atomically."""
    partial = path.with_name(f".cmf-{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("xb") as file:
            file.write(content)
        partial.replace(path)
    except OSError as error:
        fail(f"{path}: cannot be written: {error.strerror}; give another path", Exit.USAGE)
    finally:  # also on Ctrl-C: no partial file is left
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
