"""The page about `coordlab explain` says what the code does."""

from __future__ import annotations

from jax_bridge.explain import KNOWN_MESSAGES
from tests.explain.page import PAGE, page


def test_the_generated_parts_are_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "python -m tests.explain.page writes them"


def test_names_of_messages_are_different() -> None:
    names = [message.name for message in KNOWN_MESSAGES]
    assert len(names) == len(set(names))
