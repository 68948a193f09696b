"""What is fetched for a message, and all that is not. A real server on the loopback plays the internet."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from cmf.errors import MediaError
from pipeline.decisions.errors import ConfigError
from pipeline.media.fetch import Fetcher, FetchSettings, is_public

LOOPBACK = ("127.0.0.1",)
EVERYTHING = ("https://**/**", "http://**/**")


class Names:
    """A name server: answers in turn, the last answer for good; remembers what it was asked."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[int]:
    """The port of a server that answers every request with `handler`."""
    app = web.Application()
    app.router.add_route("*", "/{any:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def refusal(fetcher: Fetcher, url: str) -> str:
    with pytest.raises(MediaError) as caught:
        await fetcher.fetch(url)
    assert url not in str(caught.value)
    return caught.value.code


def inner(names: Names | None = None, **settings: object) -> Fetcher:
    """A fetcher that may reach the loopback, where the tests' servers are."""
    made = FetchSettings(allow=EVERYTHING, inner_networks=("127.0.0.0/8",), **settings)  # type: ignore[arg-type]
    return Fetcher(made, resolve=names or Names(LOOPBACK))


@pytest.mark.spec("MED-12")
@pytest.mark.parametrize(
    "url",
    [
        "ftp://cdn.example/a",
        "file:///etc/passwd",
        "gs://bucket/a",
        "//cdn.example/a",
        "cdn.example/a",
        "https://user@cdn.example/a",
        "https://user:pass@cdn.example/a",
        "https://cdn.example\\@evil.example/a",
        "https://cdn.example/a#b",
        "https://cdn.example/a b",
        "https://cdn.example/\n",
        "https://cdn.example/ä",
        "https://cdn.éxample/a",
        "https://cdn.example:99999999/a",
        "https://cdn.example%2eevil/a",
        "https://[::1%25eth0]/a",
        "https://-cdn.example/a",
        "https:///a",
        "https://cdn.example",
        "https://cdn.example/" + "a" * 2_048,
    ],
)
async def test_a_url_that_readers_could_read_differently_is_refused(url: str) -> None:
    names = Names(("93.184.216.34",))

    assert await refusal(Fetcher(FetchSettings(allow=EVERYTHING), resolve=names), url) == "media.bad-url"
    assert names.asked == []


@pytest.mark.spec("MED-12")
@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/img/a.png",
        "http://cdn.example/img/a.png",
        "https://cdn.example/other/a.png",
        "https://cdn.example/img/../other/a.png",
        "https://cdn.example/img/%2e%2e/other/a.png",
        "https://cdn.example:8443/img/a.png",
        "https://cdn.example.evil.example/img/a.png",
        "https://evil.example/https://cdn.example/img/a.png",
        "https://cdn.example/IMG/a.png",
    ],
)
async def test_a_url_that_no_pattern_names_is_refused_and_never_looked_up(url: str) -> None:
    names = Names(("93.184.216.34",))
    fetcher = Fetcher(FetchSettings(allow=("https://cdn.example/img/**",)), resolve=names)

    assert await refusal(fetcher, url) == "media.url-not-allowed"
    assert names.asked == []


@pytest.mark.spec("MED-11")
async def test_without_a_list_nothing_is_fetched() -> None:
    assert await refusal(Fetcher(FetchSettings()), "https://cdn.example/a.png") == "media.url-not-allowed"


@pytest.mark.spec("MED-12")
@pytest.mark.parametrize(
    "pattern", ["**", "https://**", "*://cdn.example/**", "cdn.example/**", "ftp://cdn.example/**"]
)
def test_a_pattern_names_scheme_and_host(pattern: str) -> None:
    with pytest.raises(ConfigError):
        Fetcher(FetchSettings(allow=(pattern,)))


@pytest.mark.spec("MED-13")
def test_an_inner_network_is_a_network() -> None:
    with pytest.raises(ConfigError):
        Fetcher(FetchSettings(inner_networks=("intranet",)))


NOT_PUBLIC = [
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "192.0.0.192",
    "198.18.0.1",
    "203.0.113.9",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "168.63.129.16",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:93.184.216.34",
    "64:ff9b::7f00:1",
    "64:ff9b:1::7f00:1",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "2002:7f00:1::",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "not an address",
]


@pytest.mark.spec("MED-13")
@pytest.mark.parametrize("address", NOT_PUBLIC)
async def test_a_name_that_leads_inside_is_refused(address: str) -> None:
    for answer in ((address,), ("93.184.216.34", address)):
        fetcher = Fetcher(FetchSettings(allow=EVERYTHING), resolve=Names(answer))

        assert await refusal(fetcher, "https://cdn.example/a.png") == "media.address-refused"


@pytest.mark.spec("MED-13")
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "0.0.0.0"])
async def test_an_address_in_the_url_is_checked_like_any_other(host: str) -> None:
    assert await refusal(Fetcher(FetchSettings(allow=EVERYTHING)), f"http://{host}/a") == "media.address-refused"


@pytest.mark.spec("MED-13")
@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "127.1", "0177.0.0.1", "localhost"])
async def test_the_systems_own_look_up_finds_the_loopback_in_every_disguise(host: str) -> None:
    code = await refusal(Fetcher(FetchSettings(allow=EVERYTHING)), f"http://{host}/a")

    assert code in {"media.address-refused", "media.unresolvable"}


@pytest.mark.spec("MED-13")
async def test_a_name_without_address_is_refused() -> None:
    assert await refusal(Fetcher(FetchSettings(allow=EVERYTHING), resolve=Names(())), "https://a.example/") == (
        "media.unresolvable"
    )
    assert await refusal(Fetcher(FetchSettings(allow=EVERYTHING)), "https://name.invalid/") == "media.unresolvable"


@pytest.mark.spec("MED-13")
@given(st.ip_addresses(v=4))
def test_a_public_address_inside_any_other_is_not_public(address: ipaddress.IPv4Address) -> None:
    as_hex = f"{int(address):08x}"
    high, low = as_hex[:4], as_hex[4:]

    disguised = [f"::ffff:{address}", f"::{address}", f"2002:{high}:{low}::", f"64:ff9b::{high}:{low}"]

    assert not any(is_public(ipaddress.ip_address(text)) for text in disguised)


@pytest.mark.spec("MED-13")
@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111"])
def test_the_public_internet_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.spec("MED-13")
async def test_a_name_that_changes_its_answer_is_asked_only_once() -> None:
    """DNS rebinding: the check sees one address, a second look-up would see another."""

    async def hello(request: web.Request) -> web.Response:
        return web.Response(body=b"hello")

    names = Names(LOOPBACK, ("169.254.169.254",))
    async with served(hello) as port:
        body = await inner(names).fetch(f"http://cdn.example:{port}/a")

    assert (body, names.asked) == (b"hello", ["cdn.example"])


@pytest.mark.spec("MED-14")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_refused_and_not_followed(status: int) -> None:
    seen: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(status=status, headers={"Location": "http://127.0.0.1/inside"})

    async with served(elsewhere) as port:
        assert await refusal(inner(), f"http://cdn.example:{port}/a") == "media.redirected"

    assert seen == ["/a"]


@pytest.mark.spec("MED-14")
@pytest.mark.parametrize("status", [204, 206, 401, 404, 500])
async def test_only_a_whole_answer_counts(status: int) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status)

    async with served(answer) as port:
        assert await refusal(inner(), f"http://cdn.example:{port}/a") == "media.not-served"


@pytest.mark.spec("MED-14")
async def test_a_compressed_body_is_refused() -> None:
    async def squeezed(request: web.Request) -> web.Response:
        return web.Response(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})

    async with served(squeezed) as port:
        assert await refusal(inner(), f"http://cdn.example:{port}/a") == "media.encoded"


@pytest.mark.spec("MED-14")
async def test_an_endless_body_is_cut_at_the_limit() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await answer.write(bytes(10_000))
        return answer

    async with served(endless) as port:
        assert await refusal(inner(max_bytes=50_000), f"http://cdn.example:{port}/a") == "media.too-large"


@pytest.mark.spec("MED-14")
async def test_a_body_of_exactly_the_limit_is_taken() -> None:
    async def exact(request: web.Request) -> web.Response:
        return web.Response(body=bytes(1_000))

    async with served(exact) as port:
        url = f"http://cdn.example:{port}/a"

        assert len(await inner(max_bytes=1_000).fetch(url)) == 1_000
        assert await refusal(inner(max_bytes=999), url) == "media.too-large"


@pytest.mark.spec("MED-14")
async def test_a_server_that_dawdles_and_a_slow_look_up_run_out_of_time() -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            for _ in range(50):
                await answer.write(b"x")
                await asyncio.sleep(0.02)
        return answer

    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(30)
        return LOOPBACK

    async with served(slow) as port:
        assert await refusal(inner(timeout_seconds=0.2), f"http://cdn.example:{port}/a") == "media.timeout"
    patient = Fetcher(FetchSettings(allow=EVERYTHING, timeout_seconds=0.05), resolve=never)
    assert await refusal(patient, "https://cdn.example/a") == "media.timeout"


@pytest.mark.spec("MED-14")
async def test_a_server_that_is_not_there_is_refused() -> None:
    async def gone(request: web.Request) -> web.Response:
        return web.Response()

    async with served(gone) as port:
        pass

    assert await refusal(inner(), f"http://cdn.example:{port}/a") == "media.unreachable"


@pytest.mark.spec("MED-14")
async def test_no_proxy_cookie_or_credential_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    seen: list[dict[str, str]] = []

    async def sweet(request: web.Request) -> web.Response:
        seen.append(dict(request.headers))
        return web.Response(body=b"x", headers={"Set-Cookie": "a=b"})

    fetcher = inner()
    async with served(sweet) as port:
        await fetcher.fetch(f"http://cdn.example:{port}/a")
        await fetcher.fetch(f"http://cdn.example:{port}/b")

    assert [set(headers) for headers in seen] == [{"Host", "Accept", "Accept-Encoding", "User-Agent", "Connection"}] * 2
    assert seen[0]["Host"] == f"cdn.example:{port}"


@pytest.mark.spec("MED-12")
async def test_what_is_asked_for_is_the_spelling_that_was_allowed() -> None:
    seen: list[str] = []

    async def echo(request: web.Request) -> web.Response:
        seen.append(request.raw_path)
        return web.Response(body=b"x")

    async with served(echo) as port:
        await inner().fetch(f"HTTP://CDN.example:{port}/a/../b/%7e%2Fc?q=%2e&x=/..")

    assert seen == ["/b/~%2Fc?q=.&x=/.."]
