"""Opening a page in the user's browser."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Mapping

# Without one of them Python takes a browser of the terminal, which knows no WebAssembly.
_SIGNS_OF_A_BROWSER = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def open_page(address: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a browser was there to open it."""
    if not any(environment.get(name) for name in _SIGNS_OF_A_BROWSER):
        return False
    return webbrowser.open_new_tab(address)
