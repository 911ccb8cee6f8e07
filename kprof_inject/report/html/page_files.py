"""The page's own files: styles, and modules that find each other by ``#name``."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable

_ROOT = files("kprof_inject.report.html") / "assets"


def text_of(name: str) -> str:
    return (_ROOT / name).read_text(encoding="utf-8")


def styles() -> str:
    """All of ``assets/*.css``, the shell's first."""
    names = sorted((entry.name for entry in _ROOT.iterdir() if entry.name.endswith(".css")), key=_shell_first)
    return "\n".join(text_of(name) for name in names)


def import_map() -> str:
    """An import map with each module as a data: URL, so that modules load without a network and without a server."""
    modules = {f"#{name}": _data_url(text) for name, text in sorted(_modules(_ROOT, "").items())}
    return json.dumps({"imports": modules}, indent=0)


def content_policy(style: str, scripts: Sequence[str] = ()) -> str:
    """The Content-Security-Policy of a page with just these inline elements: the browser runs them, and modules from
    data: URLs where there are scripts, and loads and sends nothing."""
    may_run = f"script-src {' '.join(map(_source_hash, scripts))} data:; " if scripts else ""
    return (
        f"default-src 'none'; {may_run}style-src {_source_hash(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _source_hash(text: str) -> str:
    """What a policy calls an inline element with exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _shell_first(name: str) -> tuple[bool, str]:
    return name != "style.css", name


def _modules(folder: Traversable, prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found |= _modules(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".js"):
            found[prefix + entry.name.removesuffix(".js")] = entry.read_text(encoding="utf-8")
    return found


def _data_url(module: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(module.encode()).decode()}"
