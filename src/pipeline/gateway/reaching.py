"""Whether somebody can be connected to: TCP, and TLS where it is https; not a byte of HTTP. Spec: cli.md [CLI-79]."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from typing import Final, NamedTuple
from urllib.parse import urlsplit

_REFUSED: Final = f"[Errno {errno.ECONNREFUSED}]"  # a host with several addresses refuses in a text alone
_PORTS: Final = {"http": 80, "https": 443}


class Reached(NamedTuple):
    """What came of it, in words; `hint` says what to do, and is empty where the connection came about."""

    said: str
    hint: str = ""


async def reached(url: str, *, seconds: float) -> Reached:
    """What connecting to the host of `url` came to. No proxy of the environment is used, as when it is asked."""
    parts = urlsplit(url)
    context = ssl.create_default_context() if parts.scheme == "https" else None
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            host, port = str(parts.hostname), parts.port or _PORTS[parts.scheme]
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, UnicodeError) as error:  # TimeoutError and those of TLS are among them
        return unreached(error, seconds)
    secured = writer.get_extra_info("ssl_object")
    writer.transport.abort()
    version = "no TLS" if secured is None else secured.version()
    return Reached(f"connected in {(time.monotonic() - began) * 1000:.0f} ms, {version}")


def unreached(error: Exception, seconds: float) -> Reached:
    """Why no connection came about within `seconds`, and what to look at."""
    match error:
        case TimeoutError():
            return Reached(f"no connection within {seconds:g} seconds", "look at firewalls on the way there")
        case ssl.SSLCertVerificationError():
            why = f"its certificate does not hold: {error.verify_message}"
            return Reached(why, "have this machine trust who signed it (SSL_CERT_FILE), or look at the address")
        case ssl.SSLError():
            return Reached("TLS does not come about", "look at the port: is it one for https?")
        case socket.gaierror():
            return Reached("its name is not known", "look at the address, and at this machine's DNS")
        case _ if _REFUSED in str(error):
            return Reached("nothing listens there", "look at host and port, and whether it runs")
        case _:
            return Reached(f"it cannot be reached ({type(error).__name__})", "look at the address and the network")


__all__ = ["Reached", "reached", "unreached"]
