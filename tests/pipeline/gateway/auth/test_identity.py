"""Who asks is known from what settings trust, and from nothing that anybody can say of himself."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.auth.test_tokens import SET, claims, signed
from tests.pipeline.gateway.servers import ANN, KEY, script, serving

from pipeline.gateway.auth.identity import Identities, TrustedProxy
from pipeline.gateway.auth.tokens import MAX_SET_BYTES, fetched
from pipeline.gateway.config.access import Issuer, Key, KeySource, Proxy
from pipeline.gateway.http.refusal import Refusal

CHAT = "/v1/chat/completions"
WHO = """\
deny contains {"code": "test.who", "reason": concat(",", array.concat(
    [object.get(input.extensions.security.subject, "id", "nobody")],
    sort([role | some role in object.get(input.extensions.security.subject, "roles", [])]),
))} if input.kind == "text"
"""
PROXY = {"peers": ["10.0.0.0/8", "::1/128"], "id": "x-user", "roles": "x-roles"} | {
    "permissions": "x-permissions",
    "teams": "x-teams",
}


def proxy(secret: str | None = None, **more: Any) -> TrustedProxy:
    return TrustedProxy(Proxy.model_validate(PROXY | more), secret)


def known(headers: Mapping[str, str], peer: str | None, *, secret: str | None = None, anonymous: bool = True) -> Any:
    identities = Identities([Key.model_validate(ANN)], anonymous=anonymous, proxy=proxy(secret))
    return asyncio.run(identities.subject(headers, peer))


# -- a proxy in front --------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-144")
@pytest.mark.parametrize("peer", [None, "", "testclient", "11.0.0.1", "::2", "/run/socket", "10.0.0.1.evil"])
def test_headers_that_say_who_asks_are_refused_from_anywhere_else(peer: str | None) -> None:
    said = [{name: "admin"} for name in ("x-user", "x-roles", "x-permissions", "x-teams")]
    for headers in (*said, {"x-user": "bob", "authorization": f"Bearer {KEY}"}):
        with pytest.raises(Refusal) as caught:
            known(headers, peer)
        assert (caught.value.status, caught.value.code) == (401, "auth.untrusted-header")


@pytest.mark.spec("GW-144")
@pytest.mark.parametrize("shown", [None, "", "other", "\xff"])
def test_where_the_proxy_has_a_secret_its_address_is_not_enough(shown: str | None) -> None:
    headers = {"x-user": "bob"} | ({} if shown is None else {"x-cmf-proxy-secret": shown})

    with pytest.raises(Refusal) as caught:
        known(headers, "10.0.0.1", secret="s3cret")

    assert caught.value.code == "auth.untrusted-header"
    assert known({"x-user": "bob", "x-cmf-proxy-secret": "s3cret"}, "10.0.0.1", secret="s3cret").id == "proxy:bob"


@pytest.mark.spec("GW-144")
@pytest.mark.parametrize(
    "headers",
    [
        {"x-user": ""},
        {"x-user": " "},
        {"x-roles": "a"},
        {"x-user": "a\x00"},
        {"x-user": "a", "x-roles": "a\tb"},
        {"x-user": "a", "x-roles": "agent, a\tb"},
    ],
)
def test_headers_that_say_no_name_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Refusal) as caught:
        known(headers, "10.0.0.1")

    assert caught.value.code == "auth.header"


@pytest.mark.spec("GW-144")
@pytest.mark.parametrize("peer", ["10.1.2.3", "::1", "::ffff:10.1.2.3"])
def test_from_the_proxy_its_headers_say_who_asks(peer: str) -> None:
    headers = {"x-user": "b", "x-roles": "agent, reader,", "x-permissions": "cmf:approve", "x-teams": "red"}
    subject = known(headers, peer, anonymous=False)

    assert subject.id == "proxy:b"
    assert subject.roles == {"agent", "reader"}
    assert (subject.permissions, subject.teams) == ({"cmf:approve"}, {"red"})


@pytest.mark.spec("GW-144", "GW-20")
def test_a_request_with_two_identities_is_refused() -> None:
    with pytest.raises(Refusal) as caught:
        known({"x-user": "bob", "x-api-key": KEY}, "10.0.0.1")

    assert (caught.value.status, caught.value.code) == (400, "auth.ambiguous")
    assert known({"x-api-key": KEY}, "10.0.0.1").id == "ann"
    assert known({}, "10.0.0.1") is None
    with pytest.raises(Refusal) as caught:
        known({"authorization": "Bearer a.b.c"}, None)  # a token, where none is taken
    assert caught.value.code == "auth.unknown"


@pytest.mark.spec("GW-144")
@pytest.mark.parametrize(
    "change", [{"id": "authorization"}, {"id": "x-api-key"}, {"roles": "x-user"}, {"peers": []}, {"peers": ["x"]},
               {"id": "X-User"}, {"id": "x-cmf-session-id"}, {"id": "x-cmf-approval-id"},
               {"id": "x-cmf-proxy-secret"}]
)  # fmt: skip
def test_a_proxy_whose_headers_mean_something_else_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Proxy.model_validate(PROXY | change)


# -- over sockets ------------------------------------------------------------------------------------------------------


def ask(url: str, headers: Mapping[str, str], text: str = "hi", **body: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        whole = {"model": "m", "messages": [{"role": "user", "content": text}], **body}
        connection.request("POST", CHAT, json.dumps(whole), {"content-type": "application/json", **headers})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


@pytest.mark.spec("GW-140", "GW-144", "GW-145")
def test_tokens_and_proxies_say_who_asks_and_neither_body_nor_header_changes_it(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(json.dumps(SET), encoding="utf-8")
    body = {
        "upstreams": {"up": script(tmp_path, {"text": "x"})},
        "policies": [str(write_rules(tmp_path / "policy", {"who": WHO}, kinds="text"))],
        "keys": [ANN],
        "issuers": [
            {
                "name": "corp",
                "issuer": "https://id.example",
                "audience": ["cmf"],
                "algorithms": ["RS256"],
                "keys": {"file": "keys.json"},
                "claims": {"roles": "roles"},
            }
        ],
        "proxy": {"peers": ["127.0.0.0/8"], "secret": {"env": "PROXY"}, "id": "x-user", "roles": "x-roles"},
    }
    lies = {
        "x-forwarded-user": "root",
        "x-cmf-subject": "root",
        "forwarded": "for=root",
        "x-forwarded-for": "127.0.0.1",
    }
    with serving(tmp_path, body, {"PROXY": "s3cret"}) as url:
        token = signed(claims(roles=["agent"]))
        by_token = ask(url, lies | {"authorization": f"Bearer {token}"}, "I am root", user="root")
        by_api_key = ask(url, {"x-api-key": token})
        by_proxy = ask(url, lies | {"x-user": "bob", "x-roles": "admin", "x-cmf-proxy-secret": "s3cret"})
        spoofed = ask(url, {"x-user": "bob", "x-roles": "admin"})
        broken = ask(url, {"authorization": f"Bearer {token[:-8]}AAAAAAAA"})
        nobody = ask(url, lies)

    assert by_token[0] == by_proxy[0] == 403
    assert by_token[1]["error"]["message"].startswith("corp:ann,agent ")
    assert by_api_key[1] == by_api_key[1]
    assert by_api_key[1]["error"]["message"].startswith("corp:ann,agent ")
    assert by_proxy[1]["error"]["message"].startswith("proxy:bob,admin ")
    assert (spoofed[0], spoofed[1]["error"]["code"]) == (401, "auth.untrusted-header")
    assert (broken[0], broken[1]["error"]["code"]) == (401, "auth.token")
    assert (nobody[0], nobody[1]["error"]["code"]) == (401, "auth.missing")


# -- fetching keys -----------------------------------------------------------------------------------------------------


@pytest.fixture
def place() -> Iterator[tuple[str, dict[str, Any]]]:
    """The address of a server, and what it answers: `status`, `headers`, `body`; `paths` is what it was asked."""
    says: dict[str, Any] = {"status": 200, "headers": {}, "body": json.dumps(SET).encode(), "paths": []}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            says["paths"].append(self.path)
            self.send_response(says["status"])
            for name, value in says["headers"].items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(says["body"])

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", says
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.spec("GW-142")
def test_keys_are_fetched_without_redirects_and_proxies(
    place: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, says = place
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")

    assert asyncio.run(fetched(f"{url}/keys?x=1")) == says["body"]
    says |= {"status": 302, "headers": {"location": f"{url}/elsewhere"}}
    with pytest.raises(ValueError, match="not there"):
        asyncio.run(fetched(f"{url}/keys"))
    says |= {"status": 200, "headers": {}, "body": b" " * (MAX_SET_BYTES + 1)}
    with pytest.raises(ValueError, match="too large"):
        asyncio.run(fetched(f"{url}/keys"))
    assert says["paths"] == ["/keys?x=1", "/keys", "/keys"]


@pytest.mark.spec("GW-142")
@pytest.mark.parametrize(
    "source",
    [
        {"url": "http://id.example/keys"},
        {"url": "http://127.0.0.1.evil.example/keys"},
        {"url": "ftp://127.0.0.1/keys"},
        {"url": "file:///etc/keys"},
        {"url": "https://u:p@id.example/keys"},
        {"url": "https:///keys"},
        {"url": "https://id.example/k", "file": "k"},
        {},
        {"file": "k", "stale_seconds": 1},
    ],
)
def test_keys_come_over_https_or_from_this_machine(source: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        KeySource.model_validate(source)
    for url in ("https://id.example/keys", "http://127.0.0.1/keys", "http://[::1]:80/keys"):
        assert KeySource.model_validate({"url": url}).url == url


@pytest.mark.spec("GW-141")
@pytest.mark.parametrize("algorithm", ["none", "HS256", "HS512", "rs256", ""])
def test_no_setting_allows_a_signature_that_everybody_can_make(algorithm: str) -> None:
    fields = {"name": "corp", "issuer": "i", "audience": ["a"], "keys": {"file": "k"}}

    Issuer.model_validate(fields | {"algorithms": ["RS256"]})
    with pytest.raises(ValidationError):
        Issuer.model_validate(fields | {"algorithms": ["RS256", algorithm]})
