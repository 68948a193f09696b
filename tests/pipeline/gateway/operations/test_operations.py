"""What whoever runs a gateway can do: look, reload while it serves, stop it, run several processes and lose one."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import platform
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.processes import BEGIN_SECONDS, CHAT, Serving, asked, in_flight, said, serving_process
from tests.pipeline.gateway.servers import KEY, asking, script, until

from pipeline.gateway.auth.identity import hash_of
from pipeline.gateway.http.incoming import Receive
from pipeline.gateway.operations.admin import BY, AdminApp
from pipeline.gateway.operations.operations import Operations, merged
from pipeline.gateway.processes import workers as running
from pipeline.gateway.processes.workers import give_memory_back
from pipeline.run.offload import apart, arrived

ADMIN = "cmf_an-admin-of-a-test"
OPERATIONS = {"port": 0, "keys": [{"name": "ops", "hash": hash_of(ADMIN)}]}
AS_ADMIN = {"authorization": f"Bearer {ADMIN}"}
NOT = 'deny contains {{"code": "test.not", "reason": "Not this."}} if contains(input.content, "{0}")'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_rules(tmp_path / "policy", {"words": NOT.format("forbidden")}, kinds="text")
    return tmp_path


def settings(home: Path, *replies: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"upstreams": {"up": script(home, *(replies or ({"text": "ok"},)))}, "policies": ["policy"]}
    return body | {"admin": OPERATIONS, "watch": False} | more


@pytest.fixture
def one(home: Path) -> Iterator[Serving]:
    with serving_process(home, settings(home)) as serving:
        yield serving


def reloads(serving: Serving) -> int:
    """How often policies were read again."""
    text = asked(serving.operations, "GET", "/metrics")[1]
    return int(text.partition('cmf_policy_reloads_total{outcome="done"} ')[2].split()[0])


def status(serving: Serving, text: str) -> int:
    found: int = asked(serving.url, "POST", CHAT, said(text))[0]
    return found


@pytest.mark.spec("GW-150")
def test_metrics_are_on_the_admin_port_and_not_on_the_clients_port(one: Serving) -> None:
    assert status(one, "hi") == 200
    assert status(one, "forbidden") == 403

    text = asked(one.operations, "GET", "/metrics")[1]

    assert asked(one.url, "GET", "/metrics")[0] == 404
    assert asked(one.url, "GET", "/readyz")[0] == 200
    assert asked(one.operations, "POST", CHAT, said("hi"))[0] == 404
    assert 'cmf_decisions_total{verdict="deny",action="refuse"} 1' in text
    assert 'cmf_rule_hits_total{rule="test/words"} 1' in text
    for never in ("cmf_forwarded_on_failure_total 0", 'cmf_gateway_unrecorded_total{outcome="released"} 0'):
        assert never in text


@pytest.mark.spec("GW-168")
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:9600"}, 421),
        ({"host": "evil.example", **AS_ADMIN}, 421),
        ({"origin": "http://localhost:3000"}, 403),
        ({"origin": "null", **AS_ADMIN}, 403),
        ({"host": "localhost"}, 200),
        ({"host": "10.0.0.1:9600"}, 200),
        ({"host": "[fd00::1]:9600"}, 200),
        ({"host": "Prometheus-target:9600"}, 200),
        ({"host": "llm.internal"}, 200),
    ],
)
def test_no_page_of_a_browser_reaches_the_admin_port_by_a_name_of_its_own(
    named: Serving, headers: dict[str, str], code: int
) -> None:
    for method, path in (("GET", "/metrics"), ("GET", "/readyz"), ("GET", "/healthz"), ("POST", "/admin/reload")):
        wanted = 401 if (code, path) == (200, "/admin/reload") else code

        assert asked(named.operations, method, path, headers=headers)[0] == wanted


@pytest.mark.spec("GW-168")
@pytest.mark.parametrize(
    "path", ["/%6detrics", "/admin%2freload", "//metrics", "/./metrics", "http://localhost/metrics"]
)
def test_no_other_spelling_of_a_path_is_served_to_operators(named: Serving, path: str) -> None:
    assert asked(named.operations, "GET", path)[0] == 404


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    home = tmp_path_factory.mktemp("named")
    admin, listen = {**OPERATIONS, "hosts": ["prometheus-target"]}, {"port": 0, "hosts": ["llm.internal"]}
    body = {"upstreams": {"up": script(home, {"text": "ok"})}, "admin": admin, "listen": listen, "watch": False}
    with serving_process(home, body) as serving:
        yield serving


@pytest.mark.spec("GW-61")
def test_what_only_grows_is_a_counter_and_named_so(named: Serving) -> None:
    families = re.findall(r"^# TYPE (\w+) (\w+)$", asked(named.operations, "GET", "/metrics")[1], re.MULTILINE)

    assert ("cmf_audit_records_total", "counter") in families
    assert [name for name, kind in families if (kind == "counter") != name.endswith("_total")] == []


@pytest.mark.spec("GW-151")
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 401),
        ({"authorization": f"Bearer {KEY}"}, 403),
        ({"authorization": "Basic x"}, 401),
        ({"x-api-key": KEY, **AS_ADMIN}, 401),
    ],
)
def test_only_an_admin_s_key_may_use_the_admin_port(named: Serving, headers: dict[str, str], code: int) -> None:
    assert asked(named.operations, "POST", "/admin/reload", headers=headers)[0] == code


@pytest.mark.spec("GW-151")
async def test_without_admin_keys_the_refusal_names_the_setting() -> None:
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    scope = {"type": "http", "path": "/admin/reload", "method": "POST", "headers": []}
    await AdminApp(cast("Operations", None), {})(scope, cast("Receive", None), send)

    assert (sent[0]["status"], b"`admin.keys`" in sent[1]["body"]) == (401, True)


@pytest.mark.spec("GW-151")
def test_an_admin_s_key_is_no_client_s_and_what_can_be_done_is_on_no_other_port(home: Path) -> None:
    keys = [{"name": "ann", "hash": hash_of(KEY), "subject": {"id": "ann"}}]
    with serving_process(home, settings(home, keys=keys)) as serving:
        as_client = asked(serving.url, "POST", CHAT, said("hi"), AS_ADMIN)[0]
        elsewhere = asked(serving.url, "POST", "/admin/reload", headers=AS_ADMIN)[0]
        got = asked(serving.operations, "GET", "/admin/reload", headers=AS_ADMIN)[0]

    assert (as_client, elsewhere, got) == (401, 404, 405)


@pytest.mark.spec("GW-152")
@pytest.mark.parametrize(
    ("admins", "headers", "who"),
    [
        ({hash_of("other"): "eve", hash_of(KEY): "rita"}, {"authorization": f"Bearer {KEY}", BY: "mallory"}, "rita"),
        (None, {BY: "rita%20%C3%A9"}, "rita \u00e9"),
        (None, {}, None),
    ],
)
async def test_who_reloads_policies_is_known_by_the_key_or_from_the_process_that_asked(
    admins: Any, headers: dict[str, str], who: str | None
) -> None:
    heard: list[Any] = []

    class Heard:
        async def reload(self, by: str | None = None) -> list[dict[str, Any]]:
            heard.append(by)
            return []

    async def send(_event: Any) -> None:
        pass

    spelt = [(name.encode(), text.encode()) for name, text in headers.items()]
    scope = {"type": "http", "path": "/admin/reload", "method": "POST", "headers": spelt}
    await AdminApp(cast("Operations", Heard()), admins)(scope, cast("Receive", None), send)

    assert heard == [who]


@pytest.mark.spec("GW-152")
def test_policies_are_read_again_on_demand_and_a_refused_set_changes_nothing(home: Path, one: Serving) -> None:
    before = asked(one.operations, "GET", "/readyz")[1]["revisions"]["all"]
    write_rules(home / "policy", {"words": NOT.format("other")}, kinds="text")

    done = asked(one.operations, "POST", "/admin/reload", headers=AS_ADMIN)

    assert done[0] == 200
    assert done[1]["policies"][0]["revision"] != before
    assert (status(one, "forbidden"), status(one, "other")) == (200, 403)
    write_rules(home / "policy", {"words": "deny contains x if {"}, kinds="text")
    refused = asked(one.operations, "POST", "/admin/reload", headers=AS_ADMIN)
    assert refused[0] == 409
    assert "policy." in refused[1]["policies"][0]["refused"]
    assert status(one, "other") == 403
    assert "cmf_policy_reload_failed 1" in asked(one.operations, "GET", "/metrics")[1]


@pytest.mark.spec("GW-152")
def test_a_signal_and_a_changed_file_have_policies_read_again_while_requests_go_on(home: Path) -> None:
    with serving_process(home, settings(home, watch=True)) as serving:
        found: list[int] = []
        over = threading.Event()

        def load() -> None:
            while not over.is_set():
                found.append(status(serving, "hi"))

        threads = [threading.Thread(target=load) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            write_rules(home / "policy", {"words": NOT.format("second")}, kinds="text")
            until(lambda: status(serving, "second") == 403, BEGIN_SECONDS)
            (home / "policy" / "cmf" / "rules" / "test" / "words" / "words.rego").touch()
            serving.process.send_signal(signal.SIGHUP)
            until(lambda: reloads(serving) >= 2, BEGIN_SECONDS)
        finally:
            over.set()
            for thread in threads:
                thread.join()

        assert len(found) > 5
        assert set(found) == {200}


@pytest.mark.spec("GW-153", "GW-60")
@pytest.mark.parametrize("workers", [1, 2])
def test_requests_in_progress_at_sigterm_are_answered(home: Path, workers: int) -> None:
    slow = {"when": {"says": "slow"}, "text": "done", "delay_seconds": 1.5}
    with serving_process(home, settings(home, slow, {"text": "ok"}, workers=workers)) as serving:
        answer: list[Any] = []
        thread = threading.Thread(target=lambda: answer.append(asked(serving.url, "POST", CHAT, said("slow"))))
        thread.start()
        until(lambda: in_flight(serving) == 1)
        begun = time.monotonic()
        serving.process.send_signal(signal.SIGTERM)
        until(lambda: asked(serving.operations, "GET", "/readyz")[0] == 503, 5)
        assert asked(serving.operations, "GET", "/readyz")[1] == {"status": "ending"}
        code = serving.stop()
        thread.join()

        assert code == 0
        assert answer[0][0] == 200
        assert time.monotonic() - begun < 10
        with pytest.raises(OSError, match="refused"):
            asked(serving.url, "POST", CHAT, said("hi"))


@pytest.mark.spec("GW-153")
def test_what_does_not_end_in_time_is_ended(home: Path) -> None:
    slow = {"when": {"says": "slow"}, "text": "done", "delay_seconds": 60}
    with (
        serving_process(home, settings(home, slow, grace_seconds=1)) as serving,
        asking(serving.url, CHAT, json.dumps(said("slow")).encode()) as client,
    ):
        until(lambda: in_flight(serving) == 1)
        begun = time.monotonic()
        code = serving.stop()
        client.settimeout(5)
        left = client.recv(65_536)

    assert code == 0
    assert time.monotonic() - begun < 10
    assert b"done" not in left
    assert left.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"gateway.ending"' in left
    assert "Traceback" not in "".join(serving.log)


@pytest.mark.spec("GW-153")
def test_a_stream_whose_text_is_on_its_way_says_that_it_was_ended(home: Path) -> None:
    long = {"text": "word " * 200, "pieces": 200, "pace_seconds": 0.2}
    routes = [{"name": "all", "upstream": "up", "stream": {"window": 1}}]
    brief = "enforce\n#   stream: {max_match: 9}"
    write_rules(home / "policy", {"words": NOT.format("forbidden")}, kinds="text", mode=brief)
    with (
        serving_process(home, settings(home, long, grace_seconds=1, routes=routes)) as serving,
        asking(serving.url, CHAT, json.dumps(said("go") | {"stream": True}).encode()) as client,
    ):
        client.settimeout(20)
        left = client.recv(65_536)
        code = serving.stop()
        while piece := client.recv(65_536):
            left += piece

    assert code == 0
    assert left.startswith(b"HTTP/1.1 200 ")
    assert b'"code":"gateway.ending"' in left
    assert left.endswith(b"\r\n0\r\n\r\n")
    assert "CancelledError" not in "".join(serving.log)


# -- several processes -------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-155", "GW-156")
def test_a_killed_process_takes_only_its_own_requests_and_is_begun_anew(home: Path) -> None:
    with serving_process(home, settings(home, workers=2)) as serving:
        pids = workers_of(serving)
        found: list[int] = []
        over = threading.Event()

        def load() -> None:
            while not over.is_set():
                try:
                    found.append(status(serving, "hi"))
                except OSError:
                    found.append(0)

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(found) > 20)
        os.kill(pids[0], signal.SIGKILL)
        until(lambda: len(workers_of(serving)) == 2 and pids[0] not in workers_of(serving), BEGIN_SECONDS)
        before = len(found)
        until(lambda: len(found) > before + 20)
        over.set()
        for thread in threads:
            thread.join()
        until(lambda: 'worker="1"' in asked(serving.operations, "GET", "/metrics")[1], BEGIN_SECONDS)
        text = asked(serving.operations, "GET", "/metrics")[1]

        assert set(found) <= {200, 0}
        assert found.count(0) <= 4  # one connection each at most
        assert found[-1] == 200
        assert "cmf_gateway_workers 2" in text
        assert "cmf_gateway_worker_restarts_total 1" in text
        assert text.count("# TYPE cmf_gateway_requests_total") == 1
        assert status(serving, "forbidden") == 403
        reloaded = asked(serving.operations, "POST", "/admin/reload", headers=AS_ADMIN)
        assert {entry["worker"] for entry in reloaded[1]["policies"]} == {0, 1}
        assert serving.stop() == 0
    with closing(sqlite3.connect(home / "cmf.db")) as store:
        told = [json.loads(body) for (body,) in store.execute("SELECT body FROM records WHERE kind = 'policy'")]
    assert {one["by"]["id"] for one in told if one["action"] == "change"} == {"ops"}
    assert all(not is_alive(pid) for pid in pids)


@pytest.mark.spec("GW-155")
def test_processes_whose_crew_is_killed_end_too(home: Path) -> None:
    with serving_process(home, settings(home, workers=2)) as serving:
        pids = workers_of(serving)
        serving.process.kill()
        until(lambda: not any(map(is_alive, pids)), BEGIN_SECONDS)


@pytest.mark.spec("GW-155")
def test_a_crew_that_cannot_begin_says_so_and_ends(home: Path) -> None:
    file = home / "policy" / "cmf" / "rules" / "test" / "words" / "words.rego"
    file.write_text("package cmf.rules.test.words\n\ndeny contains x if {", encoding="utf-8")

    with pytest.raises(AssertionError), serving_process(home, settings(home, workers=2)):
        pass


def workers_of(serving: Serving) -> list[int]:
    own = Path(f"/proc/{serving.process.pid}/task/{serving.process.pid}/children")
    pids = [int(pid) for pid in own.read_text().split()]
    return [pid for pid in pids if b"pipeline.gateway.processes.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.spec("GW-155")
def test_counters_of_several_processes_stay_apart_and_families_together() -> None:
    one = '# HELP a All.\n# TYPE a counter\na{x="1"} 2\n# TYPE b gauge\nb 3\n'
    other = '# HELP a All.\n# TYPE a counter\na{x="1"} 5\n'

    text = merged({"0": one, "1": other})

    first, second = text.split("# TYPE b gauge\n")
    assert first == '# HELP a All.\n# TYPE a counter\na{x="1",worker="0"} 2\na{x="1",worker="1"} 5\n'
    assert second == 'b{worker="0"} 3\n'


def test_a_port_that_is_taken_ends_the_start(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        body = settings(home, admin={"port": taken.getsockname()[1]})
        with pytest.raises(AssertionError), serving_process(home, body):
            pass


# -- memory ------------------------------------------------------------------------------------------------------------

PIECES = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
def taken(size):
    at = libc.malloc(size)
    ctypes.memset(at, 1, size)
    return at
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
if sys.argv[1] == "given":
    from pipeline.gateway.processes.workers import give_memory_back
    give_memory_back()
libc.free(taken(24 << 20))  # from here on glibc keeps all below 24 MB, left alone
before = resident()
for piece in [(taken(1 << 20), libc.malloc(1 << 10))[0] for _ in range(20)]:
    libc.free(piece)
print(resident() - before >> 20)
"""


@pytest.mark.spec("GW-68")
@pytest.mark.parametrize(("longest", "collects_at_work"), [(60.0, False), (0.0, True)])
async def test_cycles_of_old_objects_are_freed_once_nothing_large_is_worked_on(
    monkeypatch: pytest.MonkeyPatch, longest: float, collects_at_work: bool
) -> None:
    monkeypatch.setattr(running, "DUE", 0)
    monkeypatch.setattr(running, "LONGEST_WAIT", longest)
    freed, done = threading.Event(), threading.Event()
    gc.collect()
    cycle = _Cycle()
    weakref.finalize(cycle, freed.set)
    thresholds = gc.get_threshold()
    gc.set_threshold(0)
    try:
        arrived(1 << 20, anew=True)
        work = asyncio.create_task(apart(done.wait, 10))
        collecting = asyncio.create_task(running.collect_at_rest(0.01))
        del cycle
        await asyncio.sleep(0.2)
        assert freed.is_set() is collects_at_work
        done.set()
        await work
        await asyncio.sleep(0.2)
        collecting.cancel()
    finally:
        gc.set_threshold(*thresholds)

    assert freed.is_set()


class _Cycle:
    def __init__(self) -> None:
        self.own = self


@pytest.mark.spec("GW-157")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library gives memory back in its own way")
def test_the_memory_of_large_bodies_goes_back() -> None:
    def kept(how: str) -> int:
        return int(
            subprocess.run([sys.executable, "-c", PIECES, how], capture_output=True, check=True, timeout=60).stdout
        )

    assert kept("left alone") >= 16
    assert kept("given") <= 1


@pytest.mark.spec("GW-157")
def test_a_c_library_without_malloc_trim_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    give_memory_back()


@pytest.mark.spec("GW-152", "POL-69")
def test_a_reload_with_a_setting_that_no_rule_has_changes_nothing_and_says_so(home: Path, one: Serving) -> None:
    before = asked(one.operations, "GET", "/readyz")[1]["revisions"]
    data = home / "policy" / "cmf" / "defaults" / "data.json"
    data.parent.mkdir(parents=True)
    data.write_text('{"test": {"wrods": {"a": 1}}}', encoding="utf-8")

    refused = asked(one.operations, "POST", "/admin/reload", headers=AS_ADMIN)

    assert refused[0] == 409
    assert "data.cmf.defaults.test.wrods: no rule here has these settings" in refused[1]["policies"][0]["refused"]
    assert status(one, "forbidden") == 403
    assert asked(one.operations, "GET", "/readyz")[1]["revisions"] == before
    assert "cmf_policy_reload_failed 1" in asked(one.operations, "GET", "/metrics")[1]
