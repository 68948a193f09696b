"""What is sealed opens for nobody else."""

from __future__ import annotations

import pytest

from pipeline.approvals.sealing import Sealer
from pipeline.decisions.context import SessionKey
from pipeline.decisions.errors import ApprovalError, ConfigError

ANN = SessionKey("id:ann", "s1")
KEY = bytes(range(32))


@pytest.mark.spec("APR-9")
@pytest.mark.parametrize("damage", ["key", "approval", "session", "subject", "byte", "short", "empty"])
def test_a_sealed_value_opens_only_with_its_key_approval_and_session(damage: str) -> None:
    sealed = Sealer(KEY).seal("apr_1", ANN, {"about": {"amount": 7}})
    sealer = Sealer() if damage == "key" else Sealer(KEY)
    given = {"byte": sealed[:-1] + bytes([sealed[-1] ^ 1]), "short": sealed[:20], "empty": b""}.get(damage, sealed)
    owner = {"session": SessionKey("id:ann", "s2"), "subject": SessionKey("id:eve", "s1")}.get(damage, ANN)

    with pytest.raises(ApprovalError) as refused:
        sealer.open("apr_2" if damage == "approval" else "apr_1", owner, given)

    assert refused.value.code == "approval.unreadable"


@pytest.mark.spec("APR-9")
def test_another_process_with_the_key_opens_it_and_no_content_shows() -> None:
    sealed = Sealer(KEY).seal("apr_1", ANN, {"about": {"name": "Beatrice"}})

    assert b"Beatrice" not in sealed
    assert Sealer(KEY).seal("apr_1", ANN, {"about": {"name": "Beatrice"}}) != sealed
    assert Sealer(KEY).open("apr_1", ANN, sealed) == {"about": {"name": "Beatrice"}}


@pytest.mark.spec("APR-9")
@pytest.mark.parametrize("key", [b"", b"short", bytes(33)])
def test_a_key_of_another_length_is_refused(key: bytes) -> None:
    with pytest.raises(ConfigError):
        Sealer(key)
