"""The generated parts of `docs/explain.md`; `python -m tests.explain.page` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jax_bridge.explain import EXIT_CODES, KNOWN_MESSAGES
from jax_bridge.explain.classes import ADVICE
from tests.generated_parts import with_parts

PAGE = Path(__file__).parents[2] / "docs" / "explain.md"


def page(text: str) -> str:
    """The page with its generated parts as they should be."""
    return with_parts(text, {"classes": _classes(), "messages": _messages()})


def _classes() -> Iterator[str]:
    yield "| exit code | `class` in JSON | what a scheduler may do |"
    yield "| --- | --- | --- |"
    yield "| 0 | `null` | nothing is wrong |"
    for failure_class, code in EXIT_CODES.items():
        yield f"| {code} | `{failure_class.value}` | {ADVICE[failure_class]} |"


def _messages() -> Iterator[str]:
    yield "| name | text | role | class | meaning | remedy | seen |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for message in KNOWN_MESSAGES:
        hints = ", ".join(f"`{hint}`" for hint in message.hints)
        seen = "recorded" if message.recorded else "reported"
        yield (
            f"| {message.name} | {hints} | {message.role.value} | {message.failure_class.value} "
            f"| {message.meaning} | {message.remedy} | {seen} |"
        )


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
