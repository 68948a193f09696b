"""pytest fixtures: guards under the project's own policies. Spec: docs/spec/integrations.md [INT-62] ff.

Wherever this distribution is installed, every pytest run loads this module first, and most do not need it. So it
imports nothing of ours until a test uses a fixture, and stands outside `pipeline` and `cmf`: a project may have
packages of these names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from pipeline.decisions.engine import Engine
    from pipeline.guard import Guard
    from pipeline.policy.policy_set import PolicySet
    from pipeline.run.assembly import Policies


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the ini options."""
    what = "policy directories or bundles for `cmf_guard`, one per line; by default `policy`, or the shipped ones"
    parser.addini("cmf_policies", what, type="linelist")
    parser.addini("cmf_profiles", "tool profile files for `cmf_guard`, one per line", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixtures."""
    config.pluginmanager.register(_fixtures(), "cmf_fixtures")


def _fixtures() -> ModuleType:
    """The fixtures, as a module: pytest does not support methods as session fixtures."""
    import pytest

    @pytest.fixture(scope="session")
    def cmf_policies(pytestconfig: pytest.Config) -> Policies:
        """The policies of `cmf_guard`: the ini option `cmf_policies`, else `policy` here, else the shipped ones."""
        named = [_place(pytestconfig, one) for one in pytestconfig.getini("cmf_policies")]
        own = pytestconfig.rootpath / "policy"
        return named or ([own] if own.is_dir() else None)

    @pytest.fixture
    def cmf_guard(cmf_policies: Policies, pytestconfig: pytest.Config) -> Iterator[Guard]:
        """A guard with its own sessions for each test, under `cmf_policies` and `cmf_profiles`."""
        made = _guard(cmf_policies, [_place(pytestconfig, one) for one in pytestconfig.getini("cmf_profiles")])
        if isinstance(made, str):
            pytest.fail(made, pytrace=False)
        with made:
            yield made

    @pytest.fixture
    def assert_denied(cmf_guard: Guard) -> Any:
        """`assert_denied(value, rule=…)`: asserts that `cmf_guard` refuses it; see `pipeline.testing`."""
        from pipeline.testing import assert_denied

        return partial(assert_denied, cmf_guard)

    @pytest.fixture
    def assert_allowed(cmf_guard: Guard) -> Any:
        """`assert_allowed(value)`: asserts that `cmf_guard` allows it; see `pipeline.testing`."""
        from pipeline.testing import assert_allowed

        return partial(assert_allowed, cmf_guard)

    made = ModuleType("cmf_fixtures")
    made.cmf_policies, made.cmf_guard = cmf_policies, cmf_guard  # type: ignore[attr-defined]  # a module created for them
    made.assert_denied, made.assert_allowed = assert_denied, assert_allowed  # type: ignore[attr-defined]  # as above
    return made


def _place(config: pytest.Config, named: str) -> Path | str:
    """A path relative to the ini file's directory; `shipped` stays as it is."""
    return named if named == "shipped" else config.rootpath / named


def _guard(policies: Policies, profiles: Sequence[Path | str]) -> Guard | str:
    """The guard, or why it cannot be built."""
    try:
        from pipeline.decisions.errors import PipelineError
        from pipeline.guard import Guard
        from pipeline.policy.policy_set import PolicySet
        from pipeline.provenance.profiles import Profiles
    except ImportError as error:
        if str(error.name).partition(".")[0] not in ("cmf", "pipeline"):
            raise
        return f"the fixtures of cmf-pipeline need its packages `cmf` and `pipeline`: {error.name} is another one here"

    try:
        known = Profiles.load(*profiles)
        if isinstance(policies, PolicySet):
            return Guard(policies, profiles=known)
        places = [policies] if isinstance(policies, str | Path) else policies
        loaded, engine = _compiled(None if places is None else tuple(map(str, places)))
        return Guard(loaded, engine=engine, profiles=known)
    except PipelineError as error:
        return str(error)


@cache
def _compiled(places: tuple[str, ...] | None) -> tuple[PolicySet, Engine]:
    """The policies and an engine for them, built once per run."""
    from pipeline.run.assembly import Config, build_engine, load_policies

    loaded = load_policies(None if places is None else list(places))
    return loaded, build_engine(loaded, "embedded", Config())
