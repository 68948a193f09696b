"""Checking connections to hosts: TCP, and TLS for https; no HTTP is sent. Spec: cli.md [CLI-79]."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

_REFUSED: Final = f"[Errno {errno.ECONNREFUSED}]"  # a host with several addresses refuses in a text alone
_PORTS: Final = {"http": 80, "https": 443}


_INTERNAL: Final = (".local", ".internal", ".lan", ".svc", ".localhost", ".home.arpa", ".test", ".example")


class ConnectionResult(NamedTuple):
    """The result in words; `hint` says what to do, and is empty if the connection was made."""

    message: str
    hint: str = ""


def is_plain_over_networks(url: str) -> bool:
    """Whether `url` is http to a host that, by name or address, is neither this machine nor in a private network."""
    parts = urlsplit(url)
    host = (parts.hostname or "").removesuffix(".")
    if parts.scheme != "http":
        return False
    try:
        return ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith(_INTERNAL)


async def check_connection(url: str, *, seconds: float) -> ConnectionResult:
    """Connect to the host of `url`, without a proxy of the environment, as requests to it do."""
    parts = urlsplit(url)
    context = ssl.create_default_context() if parts.scheme == "https" else None
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            host, port = str(parts.hostname), parts.port or _PORTS[parts.scheme]
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, UnicodeError) as error:  # TimeoutError and those of TLS are among them
        return failure_of(error, seconds)
    secured = writer.get_extra_info("ssl_object")
    writer.transport.abort()
    version = "no TLS" if secured is None else secured.version()
    return ConnectionResult(f"connected in {(time.monotonic() - began) * 1000:.0f} ms, {version}")


def failure_of(error: Exception, seconds: float) -> ConnectionResult:
    """Why no connection was made within `seconds`, and what to check."""
    match error:
        case TimeoutError():
            return ConnectionResult(
                f"no connection within {seconds:g} seconds", "check firewalls between here and there"
            )
        case ssl.SSLCertVerificationError():
            why = f"its certificate is not trusted: {error.verify_message}"
            return ConnectionResult(why, "trust its issuer on this machine (SSL_CERT_FILE), or check the address")
        case ssl.SSLError():
            return ConnectionResult("the TLS handshake failed", "check that the port is one for https")
        case socket.gaierror():
            return ConnectionResult("its host name is unknown", "check the address, and this machine's DNS")
        case _ if _REFUSED in str(error):
            return ConnectionResult("nothing listens there", "check host and port, and that it runs")
        case _:
            return ConnectionResult(
                f"it cannot be reached ({type(error).__name__})", "check the address and the network"
            )
