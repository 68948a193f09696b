"""`cmf bundle`: made, signed, verified, looked into; and OPA agrees."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from typer.testing import CliRunner, Result

import pipeline
from pipeline.cli.app import app
from pipeline.policy.bundle_signature import ALGORITHMS, packed
from pipeline.policy.loading import bundle_files
from pipeline.run.assembly import load_policies

RUN = CliRunner()
POLICIES = Path(pipeline.__file__).parent / "templates" / "tools" / "policy"  # few files: they are loaded at every step
_CURVES = {"256": ec.SECP256R1(), "384": ec.SECP384R1(), "512": ec.SECP521R1()}


def cmf(*arguments: object) -> Result:
    return RUN.invoke(app, ["bundle", *map(str, arguments)])


def made(out: Path, *options: object) -> Path:
    result = cmf("build", out, "--policies", POLICIES, *options)
    assert result.exit_code == 0, result.output
    return out


@cache
def _rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def keys(folder: Path, algorithm: str) -> tuple[Path, Path]:
    """A private key and what verifies what it signed, as files."""
    private, public = folder / f"{algorithm}.private", folder / f"{algorithm}.public"
    if algorithm.startswith("HS"):
        for path in (private, public):
            path.write_text("one secret for both\n", encoding="utf-8")
        return private, public
    key = ec.generate_private_key(_CURVES[algorithm[2:]]) if algorithm.startswith("ES") else _rsa_key()
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.mark.spec("CLI-70")
def test_what_was_changed_after_it_was_signed_is_refused(tmp_path: Path) -> None:
    private, public = keys(tmp_path, "ES256")
    bundle = made(tmp_path / "b", "--signing-key", private, "--algorithm", "ES256")
    module = next(bundle.rglob("*.rego"))
    module.write_text(module.read_text(encoding="utf-8") + "\n", encoding="utf-8")

    result = cmf("verify", bundle, "--public-key", public, "--algorithm", "ES256")

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)


@pytest.mark.spec("CLI-70")
def test_another_key_another_scope_and_no_signature_are_refused(tmp_path: Path) -> None:
    private, public = keys(tmp_path, "ES256")
    (tmp_path / "other").mkdir()
    _, foreign = keys(tmp_path / "other", "ES256")
    signed = made(tmp_path / "b.tar.gz", "--signing-key", private, "--algorithm", "ES256", "--scope", "write")
    plain = made(tmp_path / "plain")

    def verified(bundle: Path, key: Path, *options: str) -> int:
        return cmf("verify", bundle, "--public-key", key, "--algorithm", "ES256", *options).exit_code

    assert verified(signed, public, "--scope", "write") == 0
    assert verified(signed, public) == 1
    assert verified(signed, foreign, "--scope", "write") == 1
    assert verified(plain, public) == 1


@pytest.mark.spec("CLI-70", "CLI-2")
def test_what_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    private, public = keys(tmp_path, "ES256")
    bundle = made(tmp_path / "b")
    folder = tmp_path / "no-bundle"
    folder.mkdir()
    (tmp_path / "bad.tar.gz").write_bytes(b"x")

    for arguments, code in (
        (("sign", folder, "--signing-key", private, "--algorithm", "ES256"), 2),
        (("sign", bundle, "--signing-key", tmp_path / "none"), 2),
        (("sign", bundle, "--signing-key", private), 3),
        (("sign", bundle, "--signing-key", private, "--algorithm", "ES512"), 3),
        (("sign", bundle, "--signing-key", public, "--algorithm", "ES256"), 3),
        (("sign", tmp_path / "bad.tar.gz", "--signing-key", private), 3),
        (("verify", bundle / "none", "--public-key", public), 3),
        (("inspect", tmp_path / "bad.tar.gz"), 3),
        (("build", tmp_path / "bad.tar.gz"), 2),
        (("build", bundle), 2),
    ):
        result = cmf(*arguments)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (code, "", 1), arguments
    assert not (bundle / ".signatures.json").exists()
    assert list(tmp_path.rglob(".cmf-*")) == []


@pytest.mark.spec("CLI-76", "POL-46")
def test_a_file_is_judged_by_signed_policies_only_where_a_key_is_given(tmp_path: Path) -> None:
    private, public = keys(tmp_path, "ES256")
    (tmp_path / "other").mkdir()
    _, foreign = keys(tmp_path / "other", "ES256")
    signed = made(tmp_path / "b.tar.gz", "--signing-key", private, "--algorithm", "ES256")
    file = tmp_path / "message.json"
    file.write_text('{"role": "user", "content": [{"content_type": "text", "text": "hello"}]}', encoding="utf-8")

    def judged(policies: object, *options: object) -> Result:
        return RUN.invoke(app, ["eval", str(file), "--policies", str(policies), *map(str, options)])

    def by(key: Path) -> tuple[object, ...]:
        return "--bundle-key", key, "--algorithm", "ES256"

    for result in (judged(signed), judged(signed, *by(foreign)), judged(POLICIES, *by(public))):
        assert (result.exit_code, result.stdout) == (3, "")
    assert judged(signed, *by(tmp_path / "none")).exit_code == 2
    assert judged(signed, *by(public)).exit_code == 0
    assert judged("shipped", *by(public)).exit_code == 0


@pytest.mark.spec("CLI-70", "POL-54")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_signed_here_is_verified_here(tmp_path: Path, algorithm: str) -> None:
    private, public = keys(tmp_path, algorithm)
    bundle = made(tmp_path / "b")

    assert cmf("sign", bundle, "--signing-key", private, "--algorithm", algorithm, "--key-id", "k").exit_code == 0
    result = cmf("verify", bundle, "--public-key", public, "--algorithm", algorithm)

    assert result.exit_code == 0, result.output
    assert load_policies(POLICIES).revision in result.stdout


@pytest.mark.opa
@pytest.mark.spec("POL-54")
@pytest.mark.parametrize("algorithm", ["RS256", "PS384", "ES256", "HS512"])
def test_opa_verifies_it_too(tmp_path: Path, algorithm: str, opa_binary: Path) -> None:
    private, public = keys(tmp_path, algorithm)
    given = private.read_text(encoding="utf-8").strip() if algorithm.startswith("HS") else public
    options = ("--signing-key", private, "--algorithm", algorithm, "--key-id", "k", "--scope", "read")
    bundle = made(tmp_path / "b.tar.gz", *options)
    command = [opa_binary, "build", "--bundle", bundle, "--verification-key", given, "--verification-key-id", "k"]
    command += ["--signing-key", private, "--signing-alg", algorithm, "--scope", "read"]
    command += ["--output", tmp_path / "again.tar.gz"]

    good = subprocess.run(command, capture_output=True, text=True, check=False)
    assert good.returncode == 0, good.stdout + good.stderr
    files = bundle_files(bundle)
    bundle.write_bytes(packed({name: text + b"\n" * name.endswith(".rego") for name, text in files.items()}))
    bad = subprocess.run(command, capture_output=True, text=True, check=False)
    assert bad.returncode != 0
    assert "digest mismatch" in bad.stdout + bad.stderr


@pytest.mark.spec("POL-54")
def test_an_archive_of_the_same_policies_is_the_same_bytes(tmp_path: Path) -> None:
    one, two = made(tmp_path / "one.tar.gz"), made(tmp_path / "two.tar.gz")

    assert one.read_bytes() == two.read_bytes()


@pytest.mark.spec("CLI-70")
def test_a_look_into_a_bundle_says_what_it_is(tmp_path: Path) -> None:
    private, _ = keys(tmp_path, "ES256")
    bundle = made(tmp_path / "b.tar.gz", "--signing-key", private, "--algorithm", "ES256", "--key-id", "main")

    text = cmf("inspect", bundle).stdout
    document = json.loads(cmf("inspect", bundle, "--format", "json").stdout)

    loaded = load_policies(POLICIES)
    assert document["revision"] == loaded.revision == document["manifest"]["revision"]
    assert [rule["id"] for rule in document["rules"]] == [rule.id for rule in loaded.rules]
    assert document["signature"] == {
        "algorithm": "ES256",
        "key_id": "main",
        "scope": None,
        "files": len(document["files"]),
    }
    assert "(as it says)" in text
    assert "ES256, key main" in text
    assert all(rule.id in text for rule in loaded.rules)


@pytest.mark.spec("CLI-70")
def test_a_manifest_that_says_another_revision_is_seen_through(tmp_path: Path) -> None:
    bundle = made(tmp_path / "b")
    (bundle / ".manifest").write_text('{"revision": "old", "roots": [""]}', encoding="utf-8")

    assert "(the manifest says old)" in cmf("inspect", bundle).stdout
    assert "signature  none" in cmf("inspect", bundle).stdout
