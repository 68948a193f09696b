"""The review site of a gateway: on the port of whoever runs it, for subjects with a role for it. Spec: [GW-220] ff."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from pipeline.audit.heads import PublicKey
from pipeline.gateway.auth.identity import Identities
from pipeline.gateway.config.settings import Settings
from pipeline.gateway.http.refusal import Refusal
from pipeline.gateway.operations.admin import REVIEW, App
from pipeline.gateway.service import identities, seal_key, store_of
from pipeline.review.access import Ask, Person, Refused, Role, SignedIn
from pipeline.review.rules import PoliciesAtHand
from pipeline.review.site import Site
from pipeline.review.web import build_site
from pipeline.run.assembly import open_sessions

COOKIE: Final = "cmf_review"


@contextmanager
def reviewing(settings: Settings, environment: Mapping[str, str] | None = None) -> Iterator[App | None]:
    """The site over the gateway's store, until the end of the block; None where settings say nothing of one.

    Raises:
        ConfigError: a key or secret that is not there. PolicyError: candidates that cannot be used.
        StoreError: the store cannot be opened.
    """
    if settings.review is None:
        yield None
        return
    review = settings.review
    keys = [PublicKey.at(file) for file in review.public_keys]
    hand = PoliciesAtHand.of_directories(review.policies)
    with ExitStack() as opened:
        store = opened.enter_context(store_of(settings))
        shared = settings.sessions.store
        site = Site(
            store,
            policies=hand,
            sessions=None if shared is None else opened.enter_context(open_sessions(shared)),
            seal_key=seal_key(settings, environment),
            heads=settings.audit.heads_file,
            keys=keys or None,
        )
        keeper = SignedIn(asking(identities(settings, environment), review.roles), COOKIE)
        yield build_site(site, keeper, base=REVIEW)


def asking(who: Identities, roles: Mapping[str, Role]) -> Ask:
    """What tells who comes to the site: a subject of the gateway's, in the highest role that one of its roles gives."""

    async def ask(headers: Mapping[str, str], peer: str | None) -> Person:
        try:
            subject = await who.subject(headers, peer)
        except Refusal as refusal:
            raise Refused(refusal.status, refusal.code, refusal.message) from None
        if subject is None or not subject.id:
            raise Refused(401, "auth.missing", "Present a key of this gateway.")
        given = {roles[role] for role in subject.roles or () if role in roles}
        highest = [role for role in Role if role in given][-1:]
        if not highest:
            raise Refused(403, "review.role", "You are known, and none of your roles may read this.")
        return Person(subject.id, highest[0])

    return ask
