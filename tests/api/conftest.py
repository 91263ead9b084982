"""The demo project; and a registry of checks that a test may add to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from demo_project import cli, plain_pytest, project

from opcheck.planning.kinds import REGISTERED, check_kinds
from opcheck.spec.checks import CheckKind

__all__ = ["cli", "plain_pytest", "project"]


@pytest.fixture
def registry() -> Iterator[dict[str, CheckKind]]:
    """The checks that were registered; those of the test are taken out again."""
    before = dict(REGISTERED)
    yield REGISTERED
    REGISTERED.clear()
    REGISTERED.update(before)
    check_kinds.cache_clear()
