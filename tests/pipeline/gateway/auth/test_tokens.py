"""Tokens are taken from the issuers that settings name, under their own keys, for us and now; all else is 401."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from pipeline.decisions.errors import ConfigError
from pipeline.gateway.auth.tokens import MAX_TOKEN, KeySet, Tokens
from pipeline.gateway.config.access import Issuer
from pipeline.gateway.http.refusal import Refusal

RSA = rsa.generate_private_key(65_537, 2_048)
OTHER = rsa.generate_private_key(65_537, 2_048)
EC = ec.generate_private_key(ec.SECP256R1())
EC384 = ec.generate_private_key(ec.SECP384R1())
ED = ed25519.Ed25519PrivateKey.generate()
Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
ISSUER = "https://id.example"


def jwk(private: Private, kid: str, **more: object) -> dict[str, Any]:
    public = private.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        said = jwt.algorithms.RSAAlgorithm.to_jwk(public, as_dict=True)
    elif isinstance(public, ec.EllipticCurvePublicKey):
        said = jwt.algorithms.ECAlgorithm.to_jwk(public, as_dict=True)
    else:
        said = jwt.algorithms.OKPAlgorithm.to_jwk(public, as_dict=True)
    return {name: value for name, value in said.items() if name != "key_ops"} | {"kid": kid, **more}


SET = {
    "keys": [
        jwk(RSA, "r1", alg="RS256", use="sig"),
        jwk(EC, "e1"),
        jwk(EC384, "e2"),
        jwk(ED, "d1"),
        jwk(OTHER, "enc", use="enc"),
        {"kty": "oct", "kid": "h1", "use": "enc", "k": "c2VjcmV0"},
        {"kty": "new", "kid": "n1"},
        {"kty": "RSA", "kid": "small", "n": "AQAB", "e": "AQAB"},
    ]
}


def issuer(home: Path, body: object = SET, **more: Any) -> Issuer:
    file = home / "keys.json"
    file.write_text(body if isinstance(body, str) else json.dumps(body), encoding="utf-8")
    fields: dict[str, Any] = {
        "name": "corp",
        "issuer": ISSUER,
        "audience": ["cmf"],
        "algorithms": ["RS256", "ES256", "EdDSA"],
        "keys": {"file": file},
        "claims": {"roles": "roles", "teams": ["org", "groups"], "permissions": "scope", "kept": ["tenant"]},
    }
    return Issuer.model_validate(fields | more)


def claims(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    said: dict[str, Any] = {"iss": ISSUER, "aud": "cmf", "sub": "ann", "exp": now + 60, "iat": now, "nbf": now}
    return {name: value for name, value in (said | more).items() if value is not None}


def signed(said: Mapping[str, Any], key: Any = RSA, algorithm: str = "RS256", **header: Any) -> str:
    return jwt.encode(dict(said), key, algorithm=algorithm, headers={"kid": "r1"} | header)


def by_hand(header: Mapping[str, Any] | str, body: Mapping[str, Any] | str, sign: Callable[[bytes], bytes]) -> str:
    head, said = (part if isinstance(part, str) else json.dumps(part) for part in (header, body))
    parts = b".".join(base64.urlsafe_b64encode(part.encode()).rstrip(b"=") for part in (head, said))
    return (parts + b"." + base64.urlsafe_b64encode(sign(parts)).rstrip(b"=")).decode()


def rs256(message: bytes) -> bytes:
    return jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(message, RSA)


def refusal(tokens: Tokens, token: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        asyncio.run(tokens.subject(token))
    return caught.value


PEM = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
N = jwt.utils.base64url_decode(jwk(RSA, "r1")["n"])


def hs256(secret: bytes) -> Callable[[bytes], bytes]:
    return lambda message: hmac.new(secret, message, hashlib.sha256).digest()


@pytest.mark.spec("GW-140", "GW-141")
@pytest.mark.parametrize(
    "token",
    [
        pytest.param(lambda: by_hand({"alg": "none", "kid": "r1"}, claims(), lambda _: b"x"), id="none"),
        pytest.param(lambda: by_hand({"alg": "None", "kid": "r1"}, claims(), lambda _: b"x"), id="none-case"),
        pytest.param(lambda: by_hand({"alg": "HS256", "kid": "r1"}, claims(), hs256(PEM)), id="hs-with-pem"),
        pytest.param(lambda: by_hand({"alg": "HS256", "kid": "r1"}, claims(), hs256(N)), id="hs-with-modulus"),
        pytest.param(lambda: by_hand({"alg": "HS256", "kid": "h1"}, claims(), hs256(b"secret")), id="hs-with-oct"),
        pytest.param(lambda: by_hand({"kid": "r1"}, claims(), rs256), id="no-alg"),
        pytest.param(lambda: by_hand({"alg": ["RS256"], "kid": "r1"}, claims(), rs256), id="alg-list"),
        pytest.param(lambda: by_hand('{"alg":"RS256","alg":"none","kid":"r1"}', claims(), rs256), id="alg-twice"),
        pytest.param(lambda: by_hand({"alg": "RS256", "kid": "r1", "crit": ["exp"]}, claims(), rs256), id="crit"),
        pytest.param(lambda: by_hand({"alg": "RS256"}, claims(), rs256), id="no-kid"),
        pytest.param(lambda: by_hand({"alg": "RS256", "kid": 1}, claims(), rs256), id="kid-number"),
        pytest.param(lambda: by_hand({"alg": "RS256", "kid": "r1"}, '{"iss":1,"iss":2}', rs256), id="claim-twice"),
        pytest.param(lambda: by_hand({"alg": "RS256", "kid": "r1"}, "[]", rs256), id="claims-list"),
        pytest.param(lambda: by_hand({"alg": "RS256", "kid": "r1"}, '{"exp":NaN}', rs256), id="nan"),
        pytest.param(lambda: signed(claims(), OTHER), id="another-key"),
        pytest.param(lambda: signed(claims(), OTHER, kid="enc"), id="key-for-encryption"),
        pytest.param(lambda: signed(claims(), kid="nobody"), id="unknown-kid"),
        pytest.param(lambda: signed(claims(), kid="small"), id="short-key"),
        pytest.param(lambda: signed(claims(), kid="n1"), id="unknown-kty"),
        pytest.param(lambda: signed(claims(), algorithm="RS384"), id="algorithm-not-allowed"),
        pytest.param(lambda: signed(claims(), EC, "ES256", kid="r1"), id="kid-of-another-type"),
        pytest.param(lambda: by_hand({"alg": "ES256", "kid": "e2"}, claims(), lambda _: b"x" * 64), id="curve"),
        pytest.param(lambda: signed(claims(iss="https://else.example")), id="issuer"),
        pytest.param(lambda: signed(claims(iss=None)), id="no-issuer"),
        pytest.param(lambda: by_hand({"alg": "RS256", "kid": "r1"}, claims(iss=[ISSUER]), rs256), id="issuer-list"),
        pytest.param(lambda: signed(claims(aud="other")), id="audience"),
        pytest.param(lambda: signed(claims(aud=None)), id="no-audience"),
        pytest.param(lambda: signed(claims(exp=None)), id="no-expiry"),
        pytest.param(lambda: signed(claims(nbf=int(time.time()) + 120)), id="not-yet"),
        pytest.param(lambda: signed(claims(iat=int(time.time()) + 120)), id="issued-later"),
        pytest.param(lambda: by_hand({"alg": "RS256", "kid": "r1"}, claims(exp="soon"), rs256), id="expiry-text"),
        pytest.param(lambda: by_hand({"alg": "RS256", "kid": "r1"}, claims(exp="9999999999"), rs256), id="digits"),
        pytest.param(lambda: by_hand({"alg": "RS256", "kid": "r1"}, claims(exp=1e300), rs256), id="expiry-never"),
        pytest.param(lambda: by_hand({"alg": "RS256", "kid": "r1"}, claims(nbf="1"), rs256), id="from-digits"),
        pytest.param(lambda: by_hand({"alg": "RS256", "kid": "r1"}, claims(nbf=False), rs256), id="from-boolean"),
        pytest.param(lambda: by_hand({"alg": "RS256", "kid": "r1"}, claims(iat=True), rs256), id="issued-boolean"),
        pytest.param(lambda: signed(claims(sub=None)), id="no-subject"),
        pytest.param(lambda: by_hand({"alg": "RS256", "kid": "r1"}, claims(sub=7), rs256), id="subject-number"),
        pytest.param(lambda: signed(claims(sub="")), id="subject-empty"),
        pytest.param(lambda: signed(claims(sub="a\nb")), id="subject-lines"),
        pytest.param(lambda: signed(claims(sub="a" * 257)), id="subject-long"),
        pytest.param(lambda: signed(claims(sub=" ann")), id="subject-with-space-before"),
        pytest.param(lambda: signed(claims(roles={"a": 1})), id="roles-object"),
        pytest.param(lambda: signed(claims(roles=["a", 1])), id="roles-number"),
        pytest.param(lambda: signed(claims(roles=[str(one) for one in range(257)])), id="roles-many"),
        pytest.param(lambda: signed(claims(tenant="x" * 5_000)), id="kept-large"),
        pytest.param(lambda: signed(claims(pad="x" * MAX_TOKEN)), id="large"),
        pytest.param(lambda: signed(claims())[:-6] + "AAAAAA", id="signature"),
        pytest.param(lambda: signed(claims()) + ".x", id="four-parts"),
        pytest.param(lambda: "a.b.c", id="no-json"),
    ],
)  # fmt: skip
def test_a_token_that_no_issuer_vouches_for_now_is_refused(tmp_path: Path, token: Callable[[], str]) -> None:
    tokens = Tokens([issuer(tmp_path)])

    found = refusal(tokens, token())

    assert (found.status, found.code) == (401, "auth.token")
    assert "ann" not in found.message


@pytest.mark.spec("GW-149")
@pytest.mark.parametrize(
    ("token", "why"),
    [
        pytest.param(lambda: signed(claims(aud="other")), "`audience`", id="audience"),
        pytest.param(lambda: signed(claims(iss="https://else.example")), "`issuers`", id="issuer"),
        pytest.param(lambda: signed(claims(nbf=int(time.time()) + 120)), "both clocks", id="not-yet"),
        pytest.param(lambda: signed(claims(exp=int(time.time()) - 120)), "too old", id="too-old"),
        pytest.param(lambda: signed(claims(exp=None)), "lacks one of exp", id="no-expiry"),
        pytest.param(lambda: signed(claims(), OTHER), "another key", id="another-key"),
        pytest.param(lambda: signed(claims(), kid="nobody"), "no key of this name", id="unknown-kid"),
        pytest.param(lambda: by_hand({"alg": "RS256", "kid": "r1"}, claims(exp="1"), rs256), "no number", id="expiry"),
        pytest.param(lambda: by_hand({"alg": "RS256"}, claims(), rs256), "names no key (kid)", id="no-kid"),
        pytest.param(
            lambda: by_hand({"alg": "RS256", "kid": "r1", "crit": ["exp"]}, claims(), rs256), "(crit)", id="crit"
        ),
    ],
)
def test_the_log_says_why_a_token_was_refused_and_the_client_does_not_learn_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, token: Callable[[], str], why: str
) -> None:
    caplog.set_level(logging.INFO, "pipeline.gateway")

    found = refusal(Tokens([issuer(tmp_path)]), token())

    (line,) = [json.loads(one.message) for one in caplog.records]
    assert (line["event"], why in line["why"], "ann" in line["why"]) == (found.code, True, False)
    assert found.message in ("This token is not taken.", "This token is too old.")


@pytest.mark.spec("GW-141")
def test_a_token_that_is_too_old_says_so_and_two_clocks_may_differ_a_little(tmp_path: Path) -> None:
    tokens = Tokens([issuer(tmp_path, leeway_seconds=30)])
    now = int(time.time())

    assert refusal(tokens, signed(claims(exp=now - 60))).code == "auth.expired"
    assert asyncio.run(tokens.subject(signed(claims(exp=now - 10)))).id == "corp:ann"
    assert asyncio.run(tokens.subject(signed(claims(nbf=now + 10, iat=now + 10)))).id == "corp:ann"


@pytest.mark.spec("GW-140", "GW-143")
@pytest.mark.parametrize(("key", "algorithm", "kid"), [(RSA, "RS256", "r1"), (EC, "ES256", "e1"), (ED, "EdDSA", "d1")])
def test_claims_become_the_subject_as_settings_map_them(tmp_path: Path, key: Any, algorithm: str, kid: str) -> None:
    said = claims(
        roles=["agent", "agent"], org={"groups": ["t1"]}, scope="read write", tenant={"a": 1}, secret="s", admin=True
    )

    subject = asyncio.run(Tokens([issuer(tmp_path)]).subject(signed(said, key, algorithm, kid=kid)))

    assert subject.id == "corp:ann"
    assert subject.roles == {"agent"}
    assert subject.teams == {"t1"}
    assert subject.permissions == {"read", "write"}
    assert subject.claims == {"tenant": {"a": 1}}


@pytest.mark.spec("GW-143")
def test_what_the_token_does_not_say_was_not_granted(tmp_path: Path) -> None:
    subject = asyncio.run(Tokens([issuer(tmp_path)]).subject(signed(claims(org="flat", aud=["other", "cmf"]))))

    assert (subject.roles, subject.teams, subject.permissions, subject.claims) == (None, None, None, None)


@pytest.mark.spec("GW-143")
def test_two_issuers_share_no_subject_unless_settings_say_so(tmp_path: Path) -> None:
    one = issuer(tmp_path)
    other = issuer(tmp_path, name="other", issuer="https://other.example", prefix="")
    tokens = Tokens([one, other])

    assert asyncio.run(tokens.subject(signed(claims()))).id == "corp:ann"
    assert asyncio.run(tokens.subject(signed(claims(iss="https://other.example")))).id == "ann"


@pytest.mark.spec("GW-142")
@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        '{"keys": {}}',
        '{"keys": [], "keys": []}',
        json.dumps({"keys": [jwk(RSA, "a"), jwk(OTHER, "a")]}),
        json.dumps({"keys": [jwk(RSA, str(one)) for one in range(65)]}),
        json.dumps({"keys": [jwk(RSA, "a", d="AQAB")]}),
        json.dumps({"keys": [{"kty": "oct", "kid": "a", "k": "AAAA"}]}),
        " " * (256 * 1024 + 1),
    ],
)
def test_a_key_set_that_is_none_ends_the_beginning(tmp_path: Path, body: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Tokens([issuer(tmp_path, body)]).check()

    assert caught.value.code == "config.key-set"
    (tmp_path / "keys.json").unlink()


@pytest.mark.spec("GW-142")
def test_a_key_set_that_can_be_used_lets_it_begin(tmp_path: Path) -> None:
    Tokens([issuer(tmp_path)]).check()
    Tokens([issuer(tmp_path, keys={"url": "https://id.example/keys"})]).check()


@pytest.mark.spec("GW-142")
def test_a_key_of_the_right_type_that_is_no_key_is_not_taken(tmp_path: Path) -> None:
    broken = {"kty": "EC", "kid": "e1", "crv": "P-256", "x": "AA", "y": "AA"}

    assert (
        refusal(Tokens([issuer(tmp_path, {"keys": [broken]})]), signed(claims(), EC, "ES256", kid="e1")).status == 401
    )


# -- keys that change --------------------------------------------------------------------------------------------------


class Place:
    """A URL whose answers a test decides, and a clock."""

    def __init__(self, body: object) -> None:
        self.body: object = body
        self.asked = 0
        self.now = 1_000.0

    async def fetch(self, url: str) -> bytes:
        self.asked += 1
        await asyncio.sleep(0)
        if isinstance(self.body, Exception):
            raise self.body
        return json.dumps(self.body).encode()

    def tokens(self, home: Path, **source: float) -> Tokens:
        keys = {"url": "https://id.example/keys", **source}
        settings = issuer(home, keys=keys)
        return Tokens([settings], key_sets={"corp": KeySet(settings.keys, fetch=self.fetch, clock=lambda: self.now)})


@pytest.mark.spec("GW-142")
def test_a_new_key_is_found_when_a_token_names_it_and_an_old_one_is_forgotten(tmp_path: Path) -> None:
    place = Place({"keys": [jwk(RSA, "r1")]})
    tokens = place.tokens(tmp_path)
    assert asyncio.run(tokens.subject(signed(claims()))).id == "corp:ann"

    place.body = {"keys": [jwk(OTHER, "r2")]}
    place.now += 11
    rotated = signed(claims(), OTHER, kid="r2")

    assert asyncio.run(tokens.subject(rotated)).id == "corp:ann"
    assert refusal(tokens, signed(claims())).status == 401
    assert place.asked == 2


@pytest.mark.spec("GW-142")
def test_a_file_of_keys_is_read_again_and_what_is_half_written_changes_nothing(tmp_path: Path) -> None:
    now = [0.0]
    one = issuer(tmp_path, {"keys": [jwk(RSA, "r1")]})
    tokens = Tokens([one], key_sets={one.name: KeySet(one.keys, clock=lambda: now[0])})
    asyncio.run(tokens.subject(signed(claims())))

    issuer(tmp_path, '{"keys": [{"kty"')
    now[0] = 301
    assert asyncio.run(tokens.subject(signed(claims()))).id == "corp:ann"
    issuer(tmp_path, {"keys": [jwk(OTHER, "r2")]})
    now[0] = 602

    assert refusal(tokens, signed(claims())).code == "auth.token"
    assert asyncio.run(tokens.subject(signed(claims(), OTHER, kid="r2"))).id == "corp:ann"


@pytest.mark.spec("GW-142")
def test_tokens_that_name_made_up_keys_do_not_have_them_fetched_each_time(tmp_path: Path) -> None:
    place = Place(SET)
    tokens = place.tokens(tmp_path)

    for number in range(50):
        refusal(tokens, signed(claims(), OTHER, kid=f"made-up-{number}"))
    assert place.asked == 1
    place.now += 10
    refusal(tokens, signed(claims(), OTHER, kid="made-up"))
    assert place.asked == 2


@pytest.mark.spec("GW-142")
def test_many_who_come_at_once_fetch_once(tmp_path: Path) -> None:
    place = Place(SET)
    tokens = place.tokens(tmp_path)

    async def all_at_once() -> int:
        return len(await asyncio.gather(*(tokens.subject(signed(claims())) for _ in range(20))))

    assert asyncio.run(all_at_once()) == 20
    assert place.asked == 1


@pytest.mark.spec("GW-142")
def test_keys_are_used_for_a_while_after_their_url_fails_and_then_requests_are_503(tmp_path: Path) -> None:
    place = Place(SET)
    tokens = place.tokens(tmp_path, refresh_seconds=300, stale_seconds=3_600)
    asyncio.run(tokens.subject(signed(claims())))
    place.body = OSError("down")

    place.now += 301
    assert asyncio.run(tokens.subject(signed(claims()))).id == "corp:ann"
    assert place.asked == 2
    place.now += 3_300
    found = refusal(tokens, signed(claims()))

    assert (found.status, found.code) == (503, "auth.keys")
    assert "retry-after" in found.headers
    asked = place.asked
    refusal(tokens, signed(claims()))
    assert place.asked == asked  # not at every request
    place.body, place.now = SET, place.now + 10
    assert asyncio.run(tokens.subject(signed(claims()))).id == "corp:ann"


@pytest.mark.spec("GW-142")
@pytest.mark.parametrize("body", [[], {"keys": 1}, TimeoutError(), ValueError("not there")])
def test_what_cannot_be_had_is_an_outage_and_no_verdict(tmp_path: Path, body: object) -> None:
    assert refusal(Place(body).tokens(tmp_path), signed(claims())).status == 503
