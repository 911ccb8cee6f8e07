"""Tells compiled variants of one kernel apart.

Triton keys its dump and override folders by the source hash, which leaves out ``num_warps``, ``num_stages`` and
every other compile option: two configurations of an autotuner share one key. A variant's key has them all.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime.cache import get_override_manager
from triton.runtime.driver import driver

_UNSAFE = re.compile(r"[^\w.-]")
# Triton cuts the names of its files here (compiler.py, "255 character limit").
_FILE_NAME_LENGTH = 150


@dataclass(frozen=True, slots=True)
class Variant:
    """One call of Triton's compiler: ``key`` names it in file names, ``options`` are the parsed ones.

    ``override_key`` and ``file_name`` are the folder and the file that Triton looks for in an override folder;
    ``signature`` the types of the arguments and ``constants`` the values that the source is compiled for, by name."""

    key: str
    name: str
    override_key: str
    file_name: str
    target: GPUTarget
    options: dict[str, Any]
    signature: dict[str, str]
    constants: dict[str, str]


def variant_of(compile_function: Callable[..., Any], args: Any, kwargs: Any) -> Variant | None:
    """The variant that this call compiles; None for one that starts from an IR file instead of a function."""
    call = inspect.signature(compile_function).bind(*args, **kwargs).arguments
    source = call["src"]
    if isinstance(source, str):
        return None
    target = call.get("target") or driver.active.get_current_target()
    given = dict(call.get("options") or {}, **source.parse_options())
    options = make_backend(target).parse_options(given)
    source_hash = source.hash()
    digest = hashlib.sha256(f"{source_hash} {target} {options.hash()}".encode()).hexdigest()[:16]
    name = str(source.name)
    return Variant(
        f"{_UNSAFE.sub('_', name)[:80]}-{digest}",
        name,
        Path(get_override_manager(source_hash).cache_dir).name,
        name[:_FILE_NAME_LENGTH],
        target,
        dict(options.__dict__),
        {str(name): str(kind) for name, kind in (getattr(source, "signature", None) or {}).items()},
        _constants(source),
    )


def _constants(source: Any) -> dict[str, str]:
    """Those arguments that are constants as a whole; parts of a tuple are left out."""
    names = source.fn.arg_names if hasattr(source, "fn") else []
    constants = getattr(source, "constants", None) or {}
    return {
        names[path[0]]: str(value) for path, value in constants.items() if isinstance(path, tuple) and len(path) == 1
    }
