"""The browser that the tests drive: Chromium of the system, by Playwright's protocol; nothing is downloaded."""

from __future__ import annotations

import os
import shutil

import pytest

# The first draws as the others do, without their windows: that takes half the time.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# Nothing of the browser's own talks to a network, and software draws, as on a machine without a screen.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str:
    """Its executable. Without one the test is skipped; where ``KPROF_BROWSER`` is ``required``, as in CI, it fails."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    reason = "no Chromium on PATH (Debian: apt-get install chromium)"
    if os.environ.get("KPROF_BROWSER") == "required":
        pytest.fail(reason)
    pytest.skip(reason)
