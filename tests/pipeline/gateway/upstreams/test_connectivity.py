"""Connecting to somebody, and what is said where that does not come about."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from pipeline.gateway.upstreams.upstream import check_connection


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for localhost that nobody signed but its own key, with that key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string("CN=localhost")
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "server.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + made.public_bytes(Encoding.PEM))
    return file


@contextlib.asynccontextmanager
async def serving(heard: asyncio.Queue[bytes], certificate: Path | None = None) -> AsyncIterator[int]:
    """The port of a server that notes what it is sent and says nothing."""

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            heard.put_nowait(await reader.read())
        writer.close()

    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
    async with await asyncio.start_server(note, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.spec("CLI-79")
async def test_who_can_be_connected_to_is_sent_nothing() -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    async with serving(heard) as port:
        found = await check_connection(f"http://127.0.0.1:{port}/v1", seconds=5)
        sent = await heard.get()

    assert (found.hint, sent) == ("", b"")
    assert found.message.startswith("connected in ")
    assert found.message.endswith("no TLS")


@pytest.mark.spec("CLI-79")
async def test_an_untrusted_certificate_and_a_trusted_one_are_distinguished(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(asyncio.Queue(), certificate) as port:
        refused = await check_connection(f"https://localhost:{port}", seconds=5)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        taken = await check_connection(f"https://localhost:{port}", seconds=5)

    assert "certificate is not trusted: self-signed" in refused.message.replace("self signed", "self-signed")
    assert "trust" in refused.hint
    assert (taken.hint, taken.message.endswith("TLSv1.3")) == ("", True)


@pytest.mark.spec("CLI-79")
async def test_a_failed_connection_says_why_and_what_to_do() -> None:
    async with await asyncio.start_server(_answer_in_the_clear, "127.0.0.1", 0) as plain:
        no_tls = await check_connection(f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}", seconds=5)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
        silent = await check_connection(f"https://127.0.0.1:{port}", seconds=0.05)  # nobody takes it up: TLS waits
    refused = await check_connection(f"http://127.0.0.1:{port}", seconds=5)
    unknown = await check_connection("https://no-such-host.invalid", seconds=5)
    bad = await check_connection(f"http://{'a' * 64}.example", seconds=5)

    found = (no_tls, silent, refused, unknown, bad)
    assert [one.message.partition(" ")[0] for one in found] == ["the", "no", "nothing", "its", "it"]
    assert all(one.hint for one in found)


async def _answer_in_the_clear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()
