"""Settings say what is wrong with them, where, and what was meant; and secrets stay where they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.house.tree import ROOT
from tests.pipeline.gateway.servers import ANN, script

from pipeline.decisions.errors import ConfigError, PolicyError
from pipeline.gateway.config import config_file
from pipeline.gateway.config.settings_base import Secret
from pipeline.gateway.service import built
from pipeline.policy import policy_set
from pipeline.policy.bundle_signature import SigningKey, packed, sign
from pipeline.policy.loading import SIGNATURES
from pipeline.run.assembly import load_policies

WHOLE = {
    "upstreams": {"up": {"dialect": "ollama", "base_url": "http://h:1/"}},
    "routes": [{"name": "all", "upstream": "up"}],
    "anonymous": True,
}


def up(dialect: str = "ollama", **fields: object) -> dict[str, object]:
    return {"upstreams": {"up": {"dialect": dialect, **fields}}}


def route(**fields: object) -> dict[str, object]:
    return {"routes": [{"name": "a", "upstream": "up"} | fields]}


def server(**fields: object) -> dict[str, object]:
    return {"mcp": {"m": fields}}


def loaded(home: Path, body: object, environment: dict[str, str] | None = None) -> config_file.Loaded:
    file = home / "cmf.yaml"
    file.write_text(body if isinstance(body, str) else yaml.safe_dump(body), encoding="utf-8")
    return config_file.load(file, environment or {})


@pytest.mark.spec("GW-1", "GW-3", "GW-4", "GW-230", "MCPX-67")
@pytest.mark.parametrize(
    ("change", "code", "place", "words"),
    [
        ({"rotues": []}, "config.unknown-key", "rotues", "did you mean `routes`?"),
        ({"listen": {"prot": 1}}, "config.unknown-key", "listen.prot", "did you mean `port`?"),
        (up(base_url="http://h", keys=1), "config.unknown-key", "upstreams.up.keys", "`key`"),
        (route(modles=[]), "config.unknown-key", "routes[0].modles", "did you mean `models`?"),
        ({"zzz": 1}, "config.unknown-key", "zzz", "the known keys are listen, upstreams"),
        ({"listen": {"port": 70000}}, "config.invalid", "listen.port", "less than or equal"),
        ({"routes": []}, "config.invalid", "", "nothing would be served: give `routes`, `mcp` or `check`"),
        ({"routes": [{"name": "a", "upstream": "nowhere"}]}, "config.invalid", "", "nowhere at"),
        ({"routes": [{"name": "a", "upstream": "nowhere"}]}, "config.invalid", "routes[0]", "there are up"),
        ({"routes": [{"name": "a", "upstream": "upp"}]}, "config.invalid", "", "did you mean up?"),
        ({"telemetry": {"endpoint": "collector:4318"}}, "config.invalid", "telemetry.endpoint", "write http://"),
        ({"routes": [{"name": "a", "upstream": "up"}] * 2}, "config.invalid", "routes[1]", "a route is given twice"),
        ({"listen": {"port": "many"}}, "config.invalid", "listen.port", "no whole number"),
        ({"grace_seconds": "20s"}, "config.invalid", "grace_seconds", "20, not 20s"),
        (up("olama", base_url="http://h"), "config.invalid", "upstreams.up.dialect", "did you mean ollama?"),
        (up("anthropic", base_url="http://h"), "config.invalid", "up.dialect", "did you mean anthropic_messages?"),
        (route(models="x*"), "config.invalid", "routes[0].models", "put it in brackets"),
        (route(stream={"window": 0}), "config.invalid", "routes[0].stream.window", "greater than or equal to 1"),
        (route(stream="window"), "config.invalid", "routes[0].stream", "write buffer, or {window: 256}"),
        (route(mode=False), "config.invalid", "routes[0].mode", "mode is enforce or observe"),
        ({"keys": [{"name": "a", "subject": {"id": "a"}}]}, "config.invalid", "keys[0].hash", "it is missing"),
        ({"listen": 1}, "config.invalid", "listen", "no mapping"),
        ({"mode": "off"}, "config.invalid", "", "every route is judged"),
        ({"mode": "off", "routes": [], **server(url="http://h/mcp")}, "config.invalid", "", "every route is judged"),
        ({"check": {"mode": "off"}}, "config.invalid", "", "every route is judged"),
        ({"check": {"upstream": "up"}}, "config.unknown-key", "check.upstream", "policies, mode, inference, limits"),
        ({"check": {}} | route(name="check"), "config.invalid", "", "with `check`, no route is called check"),
        (route(mode="off"), "config.invalid", "", "every route is judged"),
        ({"anonymous": False}, "config.invalid", "", "nobody could send requests"),
        ({"keys": [ANN, ANN | {"name": "b"}]}, "config.invalid", "keys[1]", "a hash is given twice"),
        ({"keys": [ANN], "admin": {"port": 1, "keys": [{"name": "ops", "hash": ANN["hash"]}]}},
         "config.invalid", "admin.keys[0]", "a hash is given twice"),
        ({"admin": {"port": 8600}}, "config.invalid", "admin.port", "`listen` has this port too"),
        ({"listen": {"host": "localhost:8600"}}, "config.invalid", "listen.host", "write the host alone"),
        ({"listen": {"host": "[::1]"}}, "config.invalid", "listen.host", "IPv6 without brackets"),
        ({"sessions": {"store": "127.0.0.1:6379"}}, "config.invalid", "sessions.store", "write redis://host"),
        ({"sessions": {"store": "reddis://h"}}, "config.invalid", "sessions.store", "write redis://host"),
        ({"aliases": {"a": ["b"], "b": ["a"]}}, "config.invalid", "aliases.b", "in place of one of them"),
        ({"aliases": {"quick": ["up"]}} | route(upstream=None, targets="quik"),
         "config.invalid", "routes[0]", "did you mean quick?"),
        (route(mode="audit"), "config.invalid", "routes[0].mode", "this is none of observe, enforce at"),
        (server(command="npx"), "config.unknown-key", "mcp.m.command", "`cmf mcp-proxy -- COMMAND`"),
        ({"keys": [{"name": "a", "key": "sk-canary", "subject": {"id": "a"}}]},
         "config.unknown-key", "keys[0].key", "the known keys are name, hash, subject"),
        ({"keys": [ANN | {"hash": "cmf_plain"}]}, "config.invalid", "keys[0].hash", "`cmf config key` makes"),
        ({"keys": [ANN | {"subject": {"roles": []}}]}, "config.invalid", "keys[0]", "needs an `id`"),
        (up(base_url="http://h", key="sk-canary"), "config.invalid", "upstreams.up.key", "write {env: NAME}"),
        (up(base_url="http://h", key={}), "config.invalid", "key", "`env` or `file`"),
        (up("ollama", base_url="http://u:sk-canary@h"), "config.invalid", "base_url", "set `key` for the key"),
        (up("openai_chat", base_url="https://h/v1"), "config.invalid", "base_url", "the dialect adds it"),
        (up("openai_chat", base_url="https://h/v1/chat/completions"),
         "config.invalid", "base_url", "write it without /v1/chat/completions"),
        (up("anthropic_messages", base_url="https://h/v1/messages/"), "config.invalid", "base_url", "without /v1/mess"),
        (up("ollama", base_url="http://h/api"), "config.invalid", "base_url", "write it without /api"),
        (up("ollama", base_url="ftp://h"), "config.invalid", "base_url", "http"),
        (up("ollama", base_url="http://h:99999"), "config.invalid", "base_url", "its host or its port is not valid"),
        (up("ollama", base_url="http://a..b"), "config.invalid", "base_url", "its host or its port is not valid"),
        (up("ollama", base_url="http://h :9"), "config.invalid", "base_url", "no spaces"),
        (server(url="http://h:x/mcp"), "config.invalid", "mcp.m.url", "its host or its port is not valid"),
        ({"keys": [ANN | {"subject": {"id": "a", "role": ["b"]}}]},
         "config.invalid", "keys[0].subject", "there is no such field (role)"),
        ({"keys": [ANN | {"subject": {"id": "a", "roles": "b"}}]},
         "config.invalid", "keys[0].subject", "write {id: ci, roles: [agent]}"),
        (up(), "config.invalid", "upstreams.up", "`script`"),
        (up(script="s"), "config.invalid", "upstreams.up", "a script has no"),
        (server(url="ftp://h/mcp"), "config.invalid", "mcp.m.url", "http://host/path"),
        (server(url="http://u:sk-canary@h/mcp"), "config.invalid", "mcp.m.url", "a URL holds no key"),
        (server(url="http://h/mcp", mode="off"), "config.invalid", "", "every MCP server is judged"),
        (server(url="http://h/mcp") | {"workers": 2}, "config.invalid", "", "set `workers: 1` with `mcp`"),
    ],
)  # fmt: skip
def test_errors_in_settings_name_their_place(
    tmp_path: Path, change: dict[str, object], code: str, place: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, WHOLE | change)

    assert caught.value.code == code
    assert str(tmp_path / "cmf.yaml") in caught.value.path
    assert place in caught.value.path
    assert words in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.spec("GW-1")
@pytest.mark.parametrize("text", ["routes: [", "a: 1\na: 2\n", "[1]", "", "\udcff", "&a [*a]"])
def test_what_is_no_mapping_in_strict_yaml_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cmf.yaml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(ConfigError) as caught:
        config_file.load(file, {})

    assert caught.value.code in ("config.unreadable", "config.invalid")


@pytest.mark.spec("GW-4")
def test_a_path_called_api_before_an_openai_endpoint_is_part_of_the_address(tmp_path: Path) -> None:
    found = loaded(tmp_path, WHOLE | up("openai_chat", base_url="https://h/api/")).settings

    assert found.upstreams["up"].base_url == "https://h/api"


@pytest.mark.spec("GW-4")
@pytest.mark.parametrize(
    ("first", "second", "is_used"),
    [
        ({}, {}, False),
        ({"models": ["gpt-*"]}, {"models": ["gpt-5", "gpt-?-mini"]}, False),
        ({"models": ["gpt-*"]}, {"models": ["gpt-5", "claude-*"]}, True),
        ({"models": ["gpt-?"]}, {"models": ["gpt-*"]}, True),
        ({"models": ["a[b]"]}, {"models": ["a[b]"]}, False),
        ({"models": ["a*"]}, {"models": ["a[b]"]}, True),  # not looked into: such a pattern is compared as it stands
        ({"dialects": ["ollama"]}, {}, True),
        ({"dialects": ["ollama"]}, {"dialects": ["ollama"]}, False),
        ({"dialects": ["ollama"]}, {"dialects": ["ollama", "gemini"]}, True),
    ],
)
def test_a_route_that_an_earlier_one_leaves_nothing_is_refused(
    tmp_path: Path, first: dict[str, object], second: dict[str, object], is_used: bool
) -> None:
    body = WHOLE | {"routes": [{"name": "a", "upstream": "up"} | first, {"name": "b", "upstream": "up"} | second]}

    if is_used:
        assert len(loaded(tmp_path, body).settings.routes) == 2
        return
    with pytest.raises(ConfigError, match=r"route b is never used.*\(a\)") as caught:
        loaded(tmp_path, body)
    assert "routes[1]" in caught.value.path


@pytest.mark.spec("GW-8")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "anonymous: true\nupstreams: {up: {script: s}}\naliases:\n  a: [up]\n  b: [upp]\nroutes: []\n",
            ":5: aliases.b",
        ),
        ("anonymous: true\nlisten:\n  host: h\n  port: many\n", ":4: listen.port"),
        ("anonymous: true\nkeys: []\nanonymous: false\n", ":3:1"),
        ("routes:\n  - {name: a, upstream: up}\n  - {name: b, upstram: up}\n", ":3: routes[1].upstram"),
        ("routes:\n\t- x\n", ":2:1"),
    ],
)
def test_errors_in_settings_name_the_line(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)

    assert caught.value.path == f"{tmp_path / 'cmf.yaml'}{line}"


@pytest.mark.spec("GW-8")
def test_what_kubernetes_puts_into_the_environment_is_called_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="enableServiceLinks"):
        loaded(tmp_path, WHOLE, {"CMF_SERVICE_HOST": "10.0.0.1"})
    with pytest.raises(ConfigError, match="enableServiceLinks"):
        loaded(tmp_path, WHOLE, {"CMF_PORT": "tcp://10.0.0.1:8600"})


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cmf config new"):
        config_file.load(tmp_path / "none.yaml", {})
    with pytest.raises(ConfigError, match="cannot be read"):
        config_file.load(tmp_path, {})
    with pytest.raises(ConfigError, match="too large"):
        loaded(tmp_path, "#" * (config_file.MAX_FILE_BYTES + 1))


@pytest.mark.spec("GW-2")
def test_the_environment_stands_over_the_file_and_both_are_named(tmp_path: Path) -> None:
    own = {
        "CMF_LISTEN__PORT": "9000",
        "CMF_UPSTREAMS__UP__BASE_URL": "http://other:2",
        "CMF_POLICIES": "[p1, /p2]",
        "OTHER": "x",
    }
    key = {"name": "a", "hash": f"sha256:{'0' * 64}", "subject": {"id": "a", "roles": ["agent"]}}

    found = loaded(tmp_path, WHOLE | {"listen": {"port": 1, "host": "::1"}, "policies": ["old"], "keys": [key]}, own)

    assert found.settings.listen.port == 9000
    assert found.settings.upstreams["up"].base_url == "http://other:2"
    assert found.settings.policies == (tmp_path / "p1", Path("/p2"))
    rows = {path: (value, source) for path, value, source in found.effective()}
    assert rows["listen.port"] == ("9000", "CMF_LISTEN__PORT")
    assert rows["listen.host"] == ("::1", "file")
    assert rows["policies[0]"] == (str(tmp_path / "p1"), "CMF_POLICIES")
    assert rows["upstreams.up.dialect"] == ("ollama", "file")
    assert rows["keys[0].subject.roles[0]"] == ("agent", "file")
    assert rows["limits.concurrent"] == ("256", "default")
    assert rows["store"] == (str(tmp_path / "cmf.db"), "default")


@pytest.mark.spec("GW-1", "GW-2")
@pytest.mark.parametrize(
    ("variable", "value", "code"),
    [
        ("CMF_LISTEM__PORT", "1", "config.unknown-key"),
        ("CMF_LISTEN__PROT", "1", "config.unknown-key"),
        ("CMF_LISTEN__PORT", "many", "config.invalid"),
        ("CMF_LISTEN__PORT", "[", "config.unreadable"),
        ("CMF_ROUTES__0__NAME", "x", "config.invalid"),
    ],
)
def test_a_variable_that_says_nothing_is_refused_by_its_name(
    tmp_path: Path, variable: str, value: str, code: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, WHOLE, {variable: value})

    assert caught.value.code == code
    assert variable in caught.value.path


@pytest.mark.spec("GW-3")
def test_a_secret_is_read_from_its_place_or_ends_the_beginning(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(" sk-1 \n", encoding="utf-8")

    assert config_file.secret_of(Secret(file=file), {}) == "sk-1"
    assert config_file.secret_of(Secret(env="K"), {"K": "sk-2"}) == "sk-2"
    for secret in (Secret(env="K"), Secret(file=tmp_path / "none")):
        with pytest.raises(ConfigError) as caught:
            config_file.secret_of(secret, {})
        assert caught.value.code == "config.no-secret"
    keyed = loaded(tmp_path, WHOLE | up(base_url="http://h", key={"env": "K"})).settings
    with pytest.raises(ConfigError, match=r"upstreams\.up\.key \(env:K\)"), built(keyed, {}):
        pass
    with pytest.raises(ConfigError):
        config_file.secret_of(Secret(env="K"), {"K": "two\nlines"})


@pytest.mark.spec("GW-3")
def test_what_holds_names_secrets_and_shows_none(tmp_path: Path) -> None:
    upstream = {"dialect": "ollama", "base_url": "http://h", "key": {"env": "KEY"}}

    rows = {path: value for path, value, _ in loaded(tmp_path, WHOLE | {"upstreams": {"up": upstream}}).effective()}

    assert rows["upstreams.up.key"] == "env:KEY"


@pytest.mark.spec("GW-3")
@pytest.mark.parametrize("key", ["", "00", "zz" * 32])
def test_a_seal_key_that_is_none_ends_the_beginning(tmp_path: Path, key: str) -> None:
    found = loaded(tmp_path, WHOLE | {"seal_key": {"env": "SEAL"}})

    with pytest.raises(ConfigError), built(found.settings, {"SEAL": key}):
        pass


@pytest.mark.spec("GW-6")
def test_policies_that_its_key_did_not_sign_end_the_beginning(tmp_path: Path) -> None:
    signer = ec.generate_private_key(ec.SECP256R1())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (tmp_path / "key.pem").write_bytes(
        signer.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.rego").write_text("package a\n", encoding="utf-8")
    key = {"policy_key": {"file": "key.pem", "algorithm": "ES256"}}
    own = loaded(tmp_path, WHOLE | key | {"policies": ["rules"]}).settings
    none = loaded(tmp_path, WHOLE | {"policy_key": {"file": "none.pem"}}).settings

    with pytest.raises(PolicyError) as caught, built(own, {}):
        pass
    with pytest.raises(ConfigError, match="the key file cannot be read"), built(none, {}):
        pass
    assert caught.value.code == "policy.bad-signature"

    files = load_policies(ROOT / "examples" / "policies").bundle()
    private = signer.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain).decode()
    files[SIGNATURES] = sign(files, SigningKey(private, algorithm="ES256"))
    (tmp_path / "b.tar.gz").write_bytes(packed(files))
    with built(loaded(tmp_path, WHOLE | key | {"policies": ["b.tar.gz"]}).settings, {}) as service:
        assert service is not None


@pytest.mark.spec("GW-7")
@pytest.mark.parametrize(
    ("said", "dialect", "address", "key"),
    [
        ("anthropic://sk-canary@api.anthropic.com", "anthropic_messages", "https://api.anthropic.com", "sk-canary"),
        ("google://k%40y@h:8443/inner/", "gemini", "https://h:8443/inner", "k@y"),
        ("openai+http://h:80", "openai_chat", "http://h:80", None),
        ("openai-responses+https://k@127.0.0.1:1", "openai_responses", "https://127.0.0.1:1", "k"),
        ("ollama://localhost:11434", "ollama", "http://localhost:11434", None),
        ("ollama://[::1]:11434", "ollama", "http://[::1]:11434", None),
        ("openrouter://k@openrouter.ai", "openrouter", "https://openrouter.ai", "k"),
    ],
)
def test_the_environment_names_upstreams(
    tmp_path: Path, said: str, dialect: str, address: str, key: str | None
) -> None:
    body = {"routes": [{"name": "all", "upstream": "foreman"}], "anonymous": True}
    environment = {"LLM_FOREMAN": said}

    found = loaded(tmp_path, body, environment)

    (upstream,) = found.settings.upstreams.values()
    assert (upstream.dialect, upstream.base_url) == (dialect, address)
    assert (upstream.key and config_file.secret_of(upstream.key, environment)) == key
    assert "canary" not in str(list(found.effective()))
    assert found.sources["upstreams.foreman.base_url"] == "LLM_FOREMAN"


@pytest.mark.spec("GW-7")
def test_an_address_of_the_environment_gets_no_key_of_the_file(tmp_path: Path) -> None:
    own = {"dialect": "ollama", "base_url": "http://h:1", "key": {"env": "KEY"}, "silent_seconds": 5.0}
    body = WHOLE | {"upstreams": {"up": own}}

    upstream = loaded(tmp_path, body, {"LLM_UP": "openai://elsewhere.example"}).settings.upstreams["up"]

    assert (upstream.base_url, upstream.key, upstream.silent_seconds) == ("https://elsewhere.example", None, 5.0)


@pytest.mark.spec("GW-7")
@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("LLM_MODEL", "gpt-5"),
        ("LLM_PROXY", "http://h:1"),
        ("LLM_", "openai://h"),
        ("LLM_a-b", "openai://h"),
        ("LLM_TUNNEL", "openai+ssh://h"),
        ("OTHER", "openai://h"),
    ],
)
def test_variables_that_hold_no_provider_address_define_no_upstream(tmp_path: Path, variable: str, said: str) -> None:
    assert loaded(tmp_path, WHOLE, {variable: said}).settings.upstreams.keys() == {"up"}


@pytest.mark.spec("GW-7")
@pytest.mark.parametrize("upstreams", [[], {"up": 1}])
def test_upstreams_that_are_none_are_refused_with_an_address_too(tmp_path: Path, upstreams: object) -> None:
    with pytest.raises(ConfigError):
        loaded(tmp_path, WHOLE | {"upstreams": upstreams}, {"LLM_UP": "openai://h"})


@pytest.mark.spec("GW-7", "GW-8")
@pytest.mark.parametrize("place", ["[::1", "h:port", "", "a b"])
def test_an_address_of_the_environment_that_is_none_is_refused_by_its_variable(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, WHOLE, {"LLM_FOREMAN": f"openai://sk-canary@{place}"})

    assert caught.value.path == "LLM_FOREMAN: upstreams.foreman.base_url"
    assert "canary" not in str(caught.value)


@pytest.mark.spec("GW-50")
@pytest.mark.parametrize("replies", [[], [{"txet": "x"}], [{"error": {"status": 200, "message": ""}}]])
def test_a_script_that_is_none_ends_the_beginning(tmp_path: Path, replies: list[dict[str, object]]) -> None:
    found = loaded(tmp_path, WHOLE | {"upstreams": {"up": script(tmp_path, *replies)}})

    with pytest.raises(ConfigError) as caught, built(found.settings, {}):
        pass

    assert caught.value.code == "config.script"
    (tmp_path / "script.yaml").unlink()
    with pytest.raises(ConfigError, match="cannot be read"), built(found.settings, {}):
        pass


@pytest.mark.spec("GW-2")
@pytest.mark.parametrize("url", ["redis://h:1/0", "unix:///run/redis.sock", "sqlite:////var/lib/cmf.db"])
def test_a_url_is_no_path_beside_the_file(tmp_path: Path, url: str) -> None:
    assert loaded(tmp_path, WHOLE | {"sessions": {"store": url}}).settings.sessions.store == url


@pytest.mark.spec("GW-9")
def test_paths_are_relative_to_the_file_and_shipped_stands_for_the_shipped_policies(tmp_path: Path) -> None:
    body = WHOLE | {"policies": ["shipped", "policy", "./shipped"], "profiles": ["shipped"]}

    settings = loaded(tmp_path, body).settings

    assert settings.policies == (policy_set.shipped(), tmp_path / "policy", tmp_path / "shipped")
    assert settings.profiles == (tmp_path / "shipped",)
