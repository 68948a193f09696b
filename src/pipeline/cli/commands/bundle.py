"""The commands `cmf bundle …` and their options; their code is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.commands.options import Algorithm, AlgorithmOption, OutputAs, PolicyOption, WrittenAs
from pipeline.cli.commands.sections import FullHelpGroup

Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A directory, or a .tar.gz.")]
SigningKey = Annotated[
    Path, typer.Option("--signing-key", metavar="FILE", help="The private key in PEM; for HS…, the secret.")
]
KeyId = Annotated[str, typer.Option("--key-id", help="The key's id in OPA's configuration.")]
Scope = Annotated[str, typer.Option("--scope", help="The signature's scope.")]

bundle = typer.Typer(cls=FullHelpGroup, help="Policy sets as OPA bundles.", no_args_is_help=True, rich_markup_mode=None)


@bundle.command("build")
def build(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new directory, or a new .tar.gz.")],
    policies: PolicyOption = None,
    key: Annotated[
        Path | None,
        typer.Option("--signing-key", metavar="FILE", help="Sign it: the private key in PEM; for HS…, the secret."),
    ] = None,
    algorithm: AlgorithmOption = Algorithm.RS256,
    key_id: KeyId = "",
    scope: Scope = "",
) -> None:
    """Write a policy set as an OPA bundle: `opa run --server --bundle OUT` then serves it.

    Exit codes: 0 written, 2 usage, 3 policy or key cannot be used.
    """
    from pipeline.cli import bundle as work

    signing = None if key is None else work.read_signing_key(key, algorithm.value, key_id, scope)
    work.build(out, policies=policies, key=signing)


@bundle.command("sign")
def sign(
    bundle: Bundle,
    key: SigningKey,
    algorithm: AlgorithmOption = Algorithm.RS256,
    key_id: KeyId = "",
    scope: Scope = "",
) -> None:
    """Sign a bundle in place, as `opa sign` does.

    Exit codes: 0 signed, 2 usage, 3 bundle or key cannot be used.
    """
    from pipeline.cli import bundle as work

    work.sign_bundle(bundle, work.read_signing_key(key, algorithm.value, key_id, scope))


@bundle.command("verify")
def verify(
    bundle: Bundle,
    key: Annotated[
        Path,
        typer.Option("--public-key", metavar="FILE", help="The public key or certificate in PEM; for HS…, the secret."),
    ],
    algorithm: AlgorithmOption = Algorithm.RS256,
    scope: Scope = "",
) -> None:
    """Report whether this key signed exactly the content of a bundle.

    Exit codes: 0 it did, 1 it did not, 2 usage, 3 bundle or key cannot be used.
    """
    from pipeline.cli import bundle as work

    work.verify_bundle(bundle, work.read_key(key, algorithm.value, scope))


@bundle.command("inspect")
def inspect(
    bundle: Bundle,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """Show the content of a bundle: revision, roots, signature, rules, files.

    Exit codes: 0 shown, 3 bundle cannot be used.
    """
    from pipeline.cli import bundle as work

    work.inspect(bundle, as_json=output is WrittenAs.JSON)


def add_to(app: typer.Typer) -> None:
    """Register the commands with `app`."""
    app.add_typer(bundle, name="bundle")


__all__ = ["add_to"]
