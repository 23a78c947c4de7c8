"""A report as one page that works offline.

What comes from the history is data: JSON in a script block that browsers do not run, shown by the
page's own script with `textContent` alone. The page's policy allows that script and that style by their
hashes, and no network.
"""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import Final

from checker.report.model import Page

SCRIPTS: Final = ("data.js", "view.js", "drawing.js", "panel.js", "page.js")
"""Parts of the one script, in order; they share a scope."""

_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def html_of(page: Page) -> str:
    """The page."""
    parts = "\n".join(_read(name) for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{parts}}})();\n'
    style = _read("report.css")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(_read("report.html")).substitute(
        policy=escape(policy),
        title=escape(f"{page.title}: {page.headline}"),
        style=style,
        script=script,
        data=data_of(page),
    )


def data_of(page: Page) -> str:
    """The page's data as JSON that can stand inside a script element, whatever it holds."""
    # Escapes of all that is not ASCII cover U+2028, U+2029 and halves of surrogate pairs.
    text = json.dumps(page.as_json(), ensure_ascii=True, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _read(name: str) -> str:
    path = files("checker.report").joinpath("static", name)
    return path.read_text(encoding="utf-8")
