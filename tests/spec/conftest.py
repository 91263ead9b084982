"""Small spec files, and what is said about them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from opcheck.planning import load
from opcheck.settings import Settings
from opcheck.spec import Library, SpecError

Write = Callable[..., Path]
Load = Callable[..., Library]
Mistakes = Callable[..., list[str]]


@pytest.fixture
def loaded(write: Write) -> Load:
    """Load the text of one spec file."""

    def load_text(text: str, **settings: object) -> Library:
        return load([write(text)], Settings.model_validate(settings))

    return load_text


@pytest.fixture
def mistakes(write: Write) -> Mistakes:
    """Return the lines that loading the text of one spec file gives."""

    def load_text(text: str, **settings: object) -> list[str]:
        with pytest.raises(SpecError) as caught:
            load([write(text)], Settings.model_validate(settings))
        return str(caught.value).splitlines()

    return load_text


@pytest.fixture
def steps() -> Callable[[Callable[[], Any]], int]:
    """Count the lines that a function runs through, and the calls it makes: what "soon" means on any machine."""

    def count(function: Callable[[], Any]) -> int:
        events = 0

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal events
            events += 1
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            function()
        finally:
            sys.settrace(before)
        return events

    return count
