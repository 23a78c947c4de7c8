"""Documents with parts that are generated: `<!-- NAME -->` begins one, `<!-- end -->` ends it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


def with_parts(text: str, parts: Mapping[str, Iterable[str]]) -> str:
    """A document with its generated parts as they should be: by name, their lines."""
    for part, lines in parts.items():
        pattern = re.compile(rf"(<!-- {part} -->\n).*?(<!-- end -->)", re.DOTALL)
        table = "".join(f"{line}\n" for line in lines)
        found = pattern.search(text)
        assert found is not None, part
        text = f"{text[: found.end(1)]}{table}{text[found.start(2) :]}"
    return text
