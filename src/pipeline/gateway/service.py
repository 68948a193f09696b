"""A gateway, built from its settings and closed again. Spec: docs/spec/gateway.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pipeline.approvals.queue import Approvals
from pipeline.audit.exporting import HeadFile
from pipeline.audit.record import Record
from pipeline.decisions.decision import Mode
from pipeline.decisions.errors import ConfigError
from pipeline.decisions.override import Overrides
from pipeline.engines.circuit_breaker import Breaker
from pipeline.gateway.app import PROBES, Gateway
from pipeline.gateway.auth.identity import Identities, TrustedProxy
from pipeline.gateway.config.config_file import secret_of
from pipeline.gateway.config.settings import CHECK_ROUTE, Check, McpServer, Route, Settings
from pipeline.gateway.config.settings import Upstream as UpstreamSettings
from pipeline.gateway.operations.metrics import Counted, Metrics
from pipeline.gateway.operations.operational_records import Chronicle, Readiness
from pipeline.gateway.operations.operations import GuardedRoutes, OwnOperations
from pipeline.gateway.operations.telemetry import Application, exported
from pipeline.gateway.proxy.admission import Admission
from pipeline.gateway.proxy.held_replies import HeldReplies
from pipeline.gateway.proxy.proxy import Backend, RouteRuntime
from pipeline.gateway.proxy.response_sessions import Links
from pipeline.gateway.upstreams.http_upstream import HttpUpstream
from pipeline.gateway.upstreams.scripted import ScriptedUpstream, load_script
from pipeline.gateway.upstreams.upstream import Upstream
from pipeline.guard import Guard
from pipeline.policy.bundle_signature import Key, Verification
from pipeline.provenance.inference import InferenceMode
from pipeline.provenance.profiles import Profiles
from pipeline.run.assembly import Config, Policies, open_sessions, vetted
from pipeline.run.recording import Records
from pipeline.sessions.base import SessionStore
from pipeline.store.database import Store
from pipeline.store.recorder import Recorder

if TYPE_CHECKING:
    from pipeline.gateway.operations.approval_webhook import ApprovalAnswers, ApprovalWebhook


class Service(NamedTuple):
    """A gateway with its operations (readiness, metrics and the like), and as it is served: perhaps traced."""

    gateway: Gateway
    operations: OwnOperations
    application: Application


@contextmanager
def built(settings: Settings, environment: Mapping[str, str] | None = None) -> Iterator[Gateway]:
    """The gateway of `assembled` alone, for hosts that serve only that."""
    with assembled(settings, environment) as service:
        yield service.gateway


@contextmanager
def assembled(settings: Settings, environment: Mapping[str, str] | None = None) -> Iterator[Service]:
    """A gateway to serve until the end of the block, with its policies compiled and its secrets read.

    Raises:
        ConfigError: a secret, script or profile is missing. PolicyError: policies cannot be used.
        StoreError: the store cannot be opened.
    """
    upstreams = {name: _upstream(name, one, settings, environment) for name, one in settings.upstreams.items()}
    breakers: dict[str, Breaker] = {}
    for name, one in settings.upstreams.items():
        first, longest = one.health.cooldown_seconds, one.health.max_cooldown_seconds
        breakers[name] = Breaker(faults=one.health.failures, first_seconds=first, longest_seconds=longest)
    with ExitStack() as opened:
        store = opened.enter_context(store_of(settings))
        _ = store.key_id  # made if missing: a store that cannot sign fails now, not at each request
        shared = settings.sessions.store
        sessions = store.sessions() if shared is None else opened.enter_context(open_sessions(shared))
        metrics = Metrics(
            lambda: {name: guard.revision for name, guard in by_route.items()},
            lambda: {
                "records_total": store.audit_state.records,
                "unprotected_records": store.audit_state.unprotected,
                "head_export_failures_total": store.audit_state.export_failures,
                "own_record_failures_total": chronicle.failures,
                "overrides": len(overrides.holding()),
            },
            lambda: {name: breaker.is_closed for name, breaker in breakers.items()},
            lambda: held.number,
            lambda: {} if webhook is None else webhook.counts,
        )
        store.writer.expect(lambda: metrics.in_flight)
        chronicle = Chronicle(store, settings, metrics.tally)
        tracing = None if settings.telemetry is None else opened.enter_context(exported(settings.telemetry))

        def on_record(record: Record) -> None:
            metrics.recorded(record)
            if tracing is not None:
                tracing.decided(record)

        overrides = store.overrides()
        guards = _guards(settings, sessions, Counted(Recorder(store), on_record), overrides, environment)
        held = HeldReplies(sessions, most=settings.approvals.waiting, ping_seconds=settings.approvals.ping_seconds)
        opened.callback(held.close)
        webhook, answers = _told(settings, store, sessions, environment, opened)
        links = Links(sessions, makes=settings.sessions.choice == "by_id")
        opened.callback(links.close)
        judged = _judged(settings)
        by_route = {name: guards[_guard_key(one, settings)] for name, one in judged.items()}
        for guard in guards.values():
            opened.callback(guard.close)
            guard.events.subscribe(metrics.on_event)
            if webhook is not None:
                guard.events.subscribe(webhook.on_event)
        runtimes = [
            RouteRuntime(
                route=route,
                guard=by_route[route.name],
                backends=tuple(
                    Backend(name=name, upstream=upstreams[name], breaker=breakers[name], model=model)
                    for name, model in route.candidates(settings.aliases)
                ),
                links=links,
                admission=Admission(route.limits),
                held=held,
                wait_seconds=settings.approvals.wait_seconds
                if route.approvals.wait_seconds is None
                else route.approvals.wait_seconds,
            )
            for route in settings.routes
        ]
        who = identities(settings, environment)
        # If unrecorded traffic may go out by settings, a broken record does not make the gateway unready.
        keeps = settings.audit.on_record_failure != "release"
        readiness = Readiness(sessions, store if keeps else None)
        guarded = []
        for key, guard in guards.items():
            names = tuple(name for name, one in judged.items() if _guard_key(one, settings) == key)
            guarded.append(GuardedRoutes(names, guard, is_watched=key.policies is not None))
        operations = OwnOperations(
            guarded, metrics, readiness.check, lambda: gateway.is_open, lambda: store.audit_state._asdict()
        )
        mcp, checks = None, None
        if settings.mcp:
            from pipeline.gateway.mcp import (  # loads the MCP proxy: only where there are servers
                McpGateway,
                endpoints_of,
            )

            endpoints = endpoints_of(settings, lambda one: guards[_guard_key(one, settings)], environment)
            mcp = McpGateway(endpoints, who, limits=settings.limits, metrics=metrics, environment=settings.environment)
        if settings.check is not None:
            from pipeline.gateway.checks import Checks  # loads the reader of MCP: only where checks are enabled

            checks = Checks(by_route[CHECK_ROUTE], settings.check)
        gateway = Gateway(
            runtimes,
            who,
            limits=settings.limits,
            metrics=metrics,
            operations=operations,
            environment=settings.environment,
            mcp=mcp,
            checks=checks,
            probes=PROBES if settings.admin is None else PROBES - {"/metrics"},
            end_waits=held.end,
            answers=answers,
        )
        for own in guarded:
            own.guard.events.subscribe(partial(chronicle.on_event, own.routes, own.guard))
        chronicle.begin([(own.routes, own.guard) for own in guarded])
        opened.callback(chronicle.close)
        if settings.watch:
            opened.enter_context(operations.watching())
        yield Service(gateway, operations, gateway if tracing is None else tracing.around(gateway))


def store_of(settings: Settings) -> Store:
    """The gateway's own store, opened. The caller closes it."""
    audit = settings.audit
    heads = None if audit.heads_file is None else HeadFile(audit.heads_file)
    return Store.named(settings.store, key=audit.key_file, heads=heads, heads_seconds=audit.heads_seconds)


def identities(settings: Settings, environment: Mapping[str, str] | None = None) -> Identities:
    """Who may send requests, by the settings; ConfigError for missing keys or secrets."""
    tokens = proxy = None
    if settings.issuers:
        from pipeline.gateway.auth.tokens import Tokens  # loads cryptography: only where there are issuers

        tokens = Tokens(settings.issuers)
        tokens.check()
    if settings.proxy is not None:
        secret = settings.proxy.secret
        shared = None if secret is None else secret_of(secret, environment, setting="proxy.secret")
        proxy = TrustedProxy(settings.proxy, shared)
    return Identities(
        settings.keys,
        anonymous=settings.anonymous,
        hosts=settings.listen.names,
        origins=settings.listen.origins,
        tokens=tokens,
        proxy=proxy,
    )


def _told(
    settings: Settings,
    store: Store,
    sessions: SessionStore,
    environment: Mapping[str, str] | None,
    opened: ExitStack,
) -> tuple[ApprovalWebhook | None, ApprovalAnswers | None]:
    """What tells people of what waits, and what takes their signed answers; None where settings have none."""
    webhook = settings.approvals.webhook
    if webhook is None:
        return None, None
    from pipeline.gateway.operations.approval_webhook import (  # loads what fetches media
        ApprovalAnswers,
        ApprovalWebhook,
    )

    secret = secret_of(webhook.secret, environment, setting="approvals.webhook.secret")
    url = webhook.url
    if not isinstance(url, str):
        named = secret_of(url, environment, setting="approvals.webhook.url")
        url = webhook.model_validate({**webhook.model_dump(), "url": named}).url
    told = ApprovalWebhook(webhook, str(url), secret, sessions, settings.approvals.site)
    opened.callback(told.close)
    if not webhook.answers:
        return told, None
    taken = ApprovalAnswers(Approvals(sessions, record=Recorder(store).record), secret, waits=sessions.waits)
    opened.callback(taken.close)
    return told, taken


class GuardKey(NamedTuple):
    """The policies and the modes of a route; routes with the same share a guard."""

    policies: tuple[Path, ...] | None
    mode: Mode
    inference: InferenceMode


def _judged(settings: Settings) -> dict[str, Route | Check]:
    """Routes and checks, by the name of their route in records. MCP servers have names of their own."""
    checks: dict[str, Route | Check] = {} if settings.check is None else {CHECK_ROUTE: settings.check}
    return {**{route.name: route for route in settings.routes}, **checks}


def _guard_key(route: Route | McpServer | Check, settings: Settings) -> GuardKey:
    policies = settings.policies if route.policies is None else route.policies
    return GuardKey(policies, route.mode or settings.mode, route.inference or settings.inference)


def judged_by(settings: Settings, field: Literal["policies", "inference"]) -> dict[Any, list[str]]:
    """What each policy set (None: the shipped one), or mode of inference, judges: `route …`, `mcp …`, `checks`."""
    judged: list[tuple[str, Route | McpServer | Check]] = [(f"route {route.name}", route) for route in settings.routes]
    judged += [(f"mcp {name}", server) for name, server in settings.mcp.items()]
    judged += [] if settings.check is None else [("checks", settings.check)]
    names: dict[Any, list[str]] = {}
    for name, each in judged:
        names.setdefault(getattr(_guard_key(each, settings), field), []).append(name)
    return names


def vet_policies(settings: Settings) -> None:
    """Try out each policy set as a reload does, so that what begins can be loaded again. PolicyError: one fails."""
    keys = signers(settings)
    for directories in judged_by(settings, "policies"):
        if directories is not None:  # the shipped set was tried out when it was built
            vetted(list(directories), "embedded", Config(bundle_keys=keys))


def _guards(
    settings: Settings,
    sessions: SessionStore,
    recorder: Records,
    overrides: Overrides,
    environment: Mapping[str, str] | None,
) -> dict[GuardKey, Guard]:
    key, signed_by = seal_key(settings, environment), signers(settings)
    profiles = Profiles.load(*settings.profiles)
    guards: dict[GuardKey, Guard] = {}
    judged = (*_judged(settings).values(), *settings.mcp.values())
    for each in {_guard_key(one, settings): None for one in judged}:
        policies: Policies = None if each.policies is None else list(each.policies)
        config = Config(
            mode=each.mode,
            timeout_seconds=settings.policy_seconds,
            sessions=settings.sessions.choice,
            history=settings.history,
            unreadable_calls=settings.unreadable_calls,
            inference=each.inference,
            seal_key=key,
            bundle_keys=signed_by,
            content=settings.audit.content,
            content_days=settings.audit.content_days,
            on_record_failure=settings.audit.on_record_failure,
        )
        guards[each] = Guard(
            policies, config=config, sessions=sessions, profiles=profiles, recorder=recorder, overrides=overrides
        )
    return guards


def signers(settings: Settings) -> Verification | None:
    """The key that policies must be signed with; None if none is needed. ConfigError: it cannot be read."""
    policy_key = settings.policy_key
    if policy_key is None:
        return None
    key = Key.at(policy_key.file, algorithm=policy_key.algorithm, scope=policy_key.scope)
    return Verification({"policy": key}, key_id="policy")


def seal_key(settings: Settings, environment: Mapping[str, str] | None = None) -> bytes | None:
    """The seal key in settings; None if each process makes its own. ConfigError: it is not a valid key."""
    if settings.seal_key is None:
        return None
    try:
        key = bytes.fromhex(secret_of(settings.seal_key, environment, setting="seal_key"))
    except ValueError:
        key = b""
    if len(key) != 32:
        hint = "openssl rand -hex 32"
        raise ConfigError("the seal key is 64 hexadecimal digits", path="seal_key", code="config.seal-key", hint=hint)
    return key


def _upstream(name: str, one: UpstreamSettings, settings: Settings, environment: Mapping[str, str] | None) -> Upstream:
    if one.script is not None:
        return ScriptedUpstream(load_script(one.script))
    key = None if one.key is None else secret_of(one.key, environment, setting=f"upstreams.{name}.key")
    return HttpUpstream(name, one, key, reply_bytes=settings.limits.reply_bytes)
