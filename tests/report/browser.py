"""A headless Chromium for the tests of the report's page."""

from __future__ import annotations

import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str:
    """The program's path; fails the test where there is none."""
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.fail(
        "the tests of the report's page need Chromium: install Debian's or Ubuntu's package "
        "`chromium` (apt-get install chromium), or leave them out with -m 'not browser'"
    )
