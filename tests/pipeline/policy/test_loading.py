"""Policies out of directories, bundles and a caller's texts; bundles as the real `opa` makes and signs them."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.pipeline.policy_files import GOOD, PLACE, Write, refusal, write

from pipeline import Config, Guard
from pipeline.decisions.errors import PolicyError
from pipeline.policy import loading, policy_set
from pipeline.policy.bundle_signature import Key, Verification

__all__ = ["write"]  # a fixture

DATA = '{"n": 1.50, "text": "a<b>&\\u2028é\\u0001", "deep": {"z": [1, {"b": null, "a": true}], "a": 1e3}}'
FILES = {
    PLACE: GOOD,
    "cmf/lib/lib.rego": "package cmf.lib\n\nf(x) := x\n",
    "notes/data.json": DATA,
    "more/data.yaml": "k: [1, a]\n",
}
REORDERED = """{"deep": {"a": 1e3, "z": [1, {"a": true, "b": null}]},
  "text": "a<b>&\\u2028\\u00e9\\u0001", "n": 1.50}
"""
SECRET = "a secret of some length"

Signed = Callable[[str, Path], Path]


def pem(private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> tuple[str, str]:
    """Private and public key as text."""
    own = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return own.decode(), public.decode()


KEYS = {
    "RS256": pem(rsa.generate_private_key(65537, 2048)),
    "ES256": pem(ec.generate_private_key(ec.SECP256R1())),
    "ES512": pem(ec.generate_private_key(ec.SECP521R1())),
    "PS384": pem(rsa.generate_private_key(65537, 2048)),
    "HS256": (SECRET, SECRET),
}


@pytest.fixture
def signed(opa_binary: Path, tmp_path: Path) -> Signed:
    """A function (algorithm, bundle directory) that signs it with `opa sign`."""

    def sign(algorithm: str, directory: Path) -> Path:
        private = KEYS[algorithm][0]
        if not algorithm.startswith("HS"):
            (tmp_path / "private.pem").write_text(private)
            private = str(tmp_path / "private.pem")
        arguments = ["sign", "--signing-key", private, "--signing-alg", algorithm, "--bundle", ".", "-o", "."]
        subprocess.run([opa_binary, *arguments], cwd=directory, check=True, capture_output=True)
        return directory

    return sign


def by(algorithm: str, **options: str) -> Verification:
    return Verification({"k": Key(KEYS[algorithm][1], algorithm, **options)}, key_id="k")


def refused(place: Path, **options: object) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        loading.read(place, **options)  # type: ignore[arg-type]
    assert caught.value.hint
    return caught.value


# -- signatures --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("POL-46")
@pytest.mark.parametrize("algorithm", KEYS)
def test_what_opa_signed_is_verified_and_any_change_is_refused(write: Write, signed: Signed, algorithm: str) -> None:
    directory = signed(algorithm, write(FILES | {".manifest": '{"roots": ["cmf", "notes", "more"]}'}))

    assert policy_set.load(directory, verification=by(algorithm)).data["notes"]["n"] == 1.5

    for path, change in (
        (PLACE, "# more\n"),
        ("notes/data.json", ""),
        (".manifest", ""),
        ("cmf/lib/new.rego", "package x\n"),
    ):
        target = directory / path
        before = target.read_text() if target.exists() else None
        target.write_text(f"{before or ''}{change}" if change else '{"roots": ["cmf"]}')
        assert refused(directory, verification=by(algorithm)).code == "policy.bad-signature", path
        target.unlink() if before is None else target.write_text(before)
    (directory / "more/data.yaml").unlink()
    assert refused(directory, verification=by(algorithm)).code == "policy.bad-signature"


@pytest.mark.spec("POL-46")
def test_whoever_takes_the_signature_away_gains_nothing(write: Write, signed: Signed) -> None:
    directory = signed("ES256", write(FILES))
    guard = Guard(directory, config=Config(bundle_keys=by("ES256")))
    before = guard.revision
    for name in (".signatures.json", ".manifest"):
        (directory / name).unlink(missing_ok=True)
    (directory / PLACE).write_text(f"{(directory / PLACE).read_text()}\n# more\n")

    with pytest.raises(PolicyError) as caught:
        guard.reload()

    assert caught.value.code == "policy.bad-signature"
    assert guard.revision == before
    assert refused(directory, verification=by("ES256")).code == "policy.bad-signature"
    assert loading.read("shipped", verification=by("ES256")).modules


@pytest.mark.spec("POL-46")
def test_only_the_order_and_spacing_of_structured_files_may_change(write: Write, signed: Signed) -> None:
    directory = signed("ES256", write(FILES))
    (directory / "notes/data.json").write_text(REORDERED)

    assert policy_set.load(directory, verification=by("ES256")).rules


@pytest.mark.spec("POL-46")
def test_another_key_algorithm_or_scope_is_refused(write: Write, signed: Signed) -> None:
    directory = signed("RS256", write(FILES))
    other = Verification({"k": Key(pem(rsa.generate_private_key(65537, 2048))[1])}, key_id="k")
    # A public key as the secret of an HMAC is the classic way to forge a token.
    confused = Verification({"k": Key(KEYS["RS256"][1], "HS256")}, key_id="k")

    assert refused(directory, verification=other).code == "policy.bad-signature"
    assert refused(directory, verification=confused).code == "policy.bad-signature"
    assert refused(directory, verification=by("RS256", scope="write")).code == "policy.bad-signature"
    assert refused(directory, verification=Verification({}, key_id="k")).code == "policy.bad-signature"
    assert refused(directory, verification=Verification({"k": Key("no key")}, key_id="k")).code == "policy.bad-key"
    assert refused(directory, verification=Verification({"k": Key("", "none")}, key_id="k")).code == "policy.bad-key"
    assert (
        refused(directory, verification=Verification({"k": Key(KEYS["ES256"][1])}, key_id="k")).code == "policy.bad-key"
    )
    assert refused(directory, verification=Verification({"k": Key(KEYS["RS256"][1], "ES256")})).code == "policy.bad-key"


def forged(**payload: object) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return json.dumps({"signatures": [f"{part({'alg': 'none', 'kid': 'k'})}.{part(payload)}."]})


@pytest.mark.spec("POL-46")
@pytest.mark.parametrize(
    "signatures",
    [
        None,
        "",
        "[]",
        "{}",
        '{"signatures": []}',
        '{"signatures": ["a.b.c", "a.b.c"]}',
        '{"signatures": ["a.b"]}',
        '{"signatures": ["*.*.*"]}',
        '{"signatures": ["MQ.MQ.MQ"]}',
        '{"signatures": ["a.b.c"], "plugin": "mine"}',
        forged(files=[]),
        forged(files="x"),
        forged(),
    ],
)
def test_a_signature_that_is_none_is_refused(write: Write, signatures: str | None) -> None:
    directory = write(FILES | ({} if signatures is None else {".signatures.json": signatures}) | {".manifest": "{}"})

    assert refused(directory, verification=by("HS256")).code == "policy.bad-signature"


@pytest.mark.spec("POL-46")
def test_a_signed_bundle_is_not_loaded_without_a_key(write: Write, signed: Signed) -> None:
    assert refused(signed("HS256", write(FILES))).code == "policy.unverified"


# -- bundles -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("POL-45")
@pytest.mark.parametrize("algorithm", [None, "RS256"])
def test_a_bundle_that_opa_built_is_loaded(
    write: Write, opa_binary: Path, tmp_path: Path, algorithm: str | None
) -> None:
    directory, target = write(FILES), tmp_path / "bundle.tar.gz"
    arguments = ["build", "--bundle", ".", "-o", str(target)]
    if algorithm is not None:
        (tmp_path / "private.pem").write_text(KEYS[algorithm][0])
        arguments += ["--signing-key", str(tmp_path / "private.pem"), "--signing-alg", algorithm]
    subprocess.run([opa_binary, *arguments], cwd=directory, check=True, capture_output=True)

    policies = policy_set.load(target, verification=None if algorithm is None else by(algorithm))

    assert [rule.id for rule in policies.rules] == ["test/rule"]
    assert policies.data["more"] == {"k": [1, "a"]}


@pytest.mark.spec("POL-45")
def test_the_bundle_of_a_set_is_the_set(write: Write, tmp_path: Path) -> None:
    policies = policy_set.load(write(FILES))
    target = tmp_path / "bundle.tar.gz"
    target.write_bytes(packed(policies.bundle()))

    assert policy_set.load(target).revision == policies.revision


def packed(files: dict[str, bytes], **members: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for entry in members.values():
            archive.addfile(entry)
    return out.getvalue()


def link(name: str, target: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    return entry


RULE = {PLACE: GOOD.encode()}


@pytest.mark.spec("POL-45")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no archive",
        gzip.compress(b"no archive"),
        packed(RULE)[:-20],
        gzip.compress(b"\0" * (loading.MAX_BUNDLE_BYTES + 1)),
        packed(RULE, a=link("x.rego", "/etc/passwd")),
        packed(RULE | {"../../x.rego": b"package x"}),
        packed(RULE | {f"./{PLACE}": b"package x"}),
        packed(RULE | {".manifest": b"[]"}),
        packed(RULE | {".manifest": b'{"roots": "cmf"}'}),
        packed(RULE | {".manifest": b'{"rego_version": 0}'}),
        packed(RULE | {".manifest": b'{"wasm": [{"entrypoint": "a"}]}'}),
        packed(RULE | {"policy.wasm": b"\0asm"}),
        packed(RULE | {".manifest": b'{"roots": ["app"]}'}),
        packed(RULE | {".manifest": b'{"roots": ["cmf/rules"]}', "data.json": b'{"cmf": {"other": 1}}'}),
    ],
    ids=range(15),
)
def test_a_bundle_that_is_none_or_leads_out_is_refused(tmp_path: Path, content: bytes) -> None:
    target = tmp_path / "bundle.tar.gz"
    target.write_bytes(content)

    assert refused(target).code == "policy.bad-bundle"


@pytest.mark.spec("POL-45")
def test_what_lies_in_the_roots_is_loaded(tmp_path: Path) -> None:
    target = tmp_path / "bundle.tar.gz"
    manifest = {
        ".manifest": b'{"roots": ["cmf/rules", "cmf/defaults"]}',
        "data.json": b'{"cmf": {"defaults": {"a": {}}}}',
    }
    target.write_bytes(packed(RULE | manifest))

    assert policy_set.load(target).rules


# -- a caller's texts --------------------------------------------------------------------------------------------------


def own(package: str, path: str = "mine.rego") -> dict[str, str]:
    return {path: f"package {package}\n\nx := 1\n"}


@pytest.mark.spec("POL-44")
@pytest.mark.parametrize(
    "inline",
    [
        own("cmf.rules.test.rule"),
        own("cmf.rules.test.rule.deeper"),
        own("cmf.rules.test"),
        own("cmf"),
        own("cmf.lib"),
        own("notes"),
        own("notes.deep"),
        own("notes.n"),
        own("notes.text.x"),
        own("mine", PLACE),
    ],
    ids=lambda inline: next(iter(inline.values())).split("\n")[0],
)
def test_a_callers_policies_shadow_nothing_of_the_operator(write: Write, inline: dict[str, str]) -> None:
    assert refused(write(FILES), inline=inline).code == "policy.shadows-operator"


@pytest.mark.spec("POL-44")
@pytest.mark.parametrize(
    "package", ['cmf["rules"]["test"]["rule"]', 'cmf.rules["test"].rule', 'notes["deep"]', "mine;", "mine.", "mine/x"]
)
def test_a_callers_package_is_spelled_plainly(write: Write, package: str) -> None:
    assert refused(write(FILES), inline=own(package)).code == "policy.bad-package"


@pytest.mark.spec("POL-44")
@pytest.mark.parametrize(
    "package",
    ["cmf.main", "cmf.main.text", "cmf.effect", "cmf.profiles", "cmf.exceptions.x", "system.authz", "system"],
)
def test_a_callers_policies_are_not_what_is_generated_or_kept(write: Write, package: str) -> None:
    assert refused(write(FILES), inline=own(package)).code == "policy.reserved-name"


@pytest.mark.spec("POL-44")
def test_a_callers_rule_is_asked_beside_the_operators(write: Write) -> None:
    mine = GOOD.replace("package cmf.rules.test.rule", "package cmf.rules.mine.rule")

    policies = policy_set.load(write(FILES), inline={"cmf/rules/mine/rule/rule.rego": mine})

    assert [rule.id for rule in policies.rules] == ["mine/rule", "test/rule"]


@pytest.mark.spec("POL-6")
def test_a_file_that_cannot_be_read_is_refused(write: Write) -> None:
    directory = write(FILES)
    (directory / "x.txt").symlink_to(directory / "gone")
    assert policy_set.load(directory).rules  # a link to nothing, with a name that says nothing

    (directory / "loop").symlink_to(directory)
    assert [module.path for module in loading.read(directory).modules] == ["cmf/lib/lib.rego", PLACE]
    assert refusal(directory / "none").code == "policy.no-directory"


@pytest.mark.spec("POL-1")
def test_policies_behind_links_are_loaded_once_and_one_that_leads_back_up_is_not_gone_into(
    write: Write, tmp_path: Path
) -> None:
    """As a Kubernetes volume is made, and as people share a category between sets."""
    volume = write({f"..2026/{path}": text for path, text in FILES.items()}, "volume")
    (volume / "..data").symlink_to("..2026")
    for name in ("cmf", "notes", "more"):
        (volume / name).symlink_to(f"..data/{name}")
    (volume / "..2026" / "cmf" / "up").symlink_to("../..")

    loaded = policy_set.load(volume)

    assert loaded.revision == policy_set.load(write(FILES, "plain")).revision


@pytest.mark.spec("POL-1")
def test_a_directory_that_cannot_be_read_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(FILES)
    real = Path.iterdir

    def refuses(path: Path) -> Iterator[Path]:
        if path.name == "rules":
            raise PermissionError(13, "no", str(path))
        return real(path)

    monkeypatch.setattr(Path, "iterdir", refuses)

    assert refusal(folder).code == "policy.unreadable"


@pytest.mark.spec("POL-6")
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("README.md", "policy.empty"),
        ("cmf/rules/a/b/b.rego.bak", "policy.empty"),
        ("cmf/rules/a/b/b.REGO", "policy.unread-file"),
        ("cmf/defaults/settings.json", "policy.unread-file"),
        ("cmf/defaults/Data.yaml", "policy.unread-file"),
        ("cmf/modes.yml", "policy.unread-file"),
        ("cmf/rules/a/b_test/b_test.rego", "policy.reserved-name"),
    ],
)
def test_a_directory_that_adds_nothing_and_a_file_that_is_not_read_are_refused(
    write: Write, path: str, code: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        loading.read("shipped", write({path: "x: 1"}))

    assert (caught.value.code, bool(caught.value.hint)) == (code, True)


@pytest.mark.spec("POL-1")
def test_a_link_that_leads_nowhere_is_refused_and_what_is_no_file_is_left_alone(write: Write) -> None:
    directory = write({"cmf/modes/data.yaml": "data/pii: off"})
    os.mkfifo(directory / "a.rego")
    assert loading.read("shipped", directory).data["cmf"]["modes"]
    (directory / "b.rego").symlink_to("gone.rego")

    with pytest.raises(PolicyError) as caught:
        loading.read("shipped", directory)

    assert (caught.value.code, caught.value.path) == ("policy.unreadable", "b.rego")
