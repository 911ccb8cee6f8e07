"""What one process of the program says about itself: a small JSON file, rewritten as things happen."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kprof_inject.files import read_object, write_json
from kprof_inject.printable import printable
from kprof_inject.runtime.children import UNREACHED_ENDING
from kprof_inject.runtime.faults import say


class ProcessReport:
    """Collects for one process; safe to use from several threads, and in a child made by ``fork``."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._started_ns = time.time_ns()
        self._lock = threading.RLock()
        self._kernels: dict[str, dict[str, Any]] = {}
        self._choices: list[dict[str, str]] = []
        self._errors: list[str] = []
        self._refused = False
        self.triton_version = ""
        self.gpu: bool | None = None

    def add_kernel(self, variant: str, name: str, state: str, reason: str = "") -> None:
        """``state`` is ``dumped``, ``passed over`` by ``--kernel``, ``instrumented``, ``left alone`` for a reason."""
        with self._lock:
            self._kernels[variant] = {"name": name, "state": state, "reason": reason}
            self.write()

    def add_choice(self, kernel: str, key: str, config: str) -> None:
        """What an autotuner chose for a kernel, for the arguments that ``key`` stands for."""
        with self._lock:
            self._choices.append({"kernel": kernel, "key": key, "config": config})
            self.write()

    @contextmanager
    def guard(self, doing: str) -> Iterator[None]:
        """Keep a failure of ours from reaching the program; it is reported instead."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
            with self._lock:
                self._errors.append(f"{doing}: {type(error).__name__}: {error}")
                self.write()

    def write(self) -> None:
        """Never raises: a full disk must not stop the program."""
        values = {
            "pid": os.getpid(),
            "argv": list(getattr(sys, "argv", ())) or list(sys.orig_argv),
            "triton_version": self.triton_version,
            "gpu": self.gpu,
            "kernels": self._kernels,
            "choices": self._choices,
            "errors": self._errors,
        }
        try:
            write_json(self._folder / f"{os.getpid()}-{self._started_ns}.json", values)
        except OSError as error:
            if not self._refused:
                self._refused = True
                say(f"cannot report: {error}")


@dataclass(frozen=True, slots=True)
class KernelState:
    """What became of one variant in one process."""

    variant: str
    name: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class AutotunerChoice:
    """What an autotuner chose for the arguments that ``key`` stands for."""

    kernel: str
    key: str
    config: str


@dataclass(frozen=True, slots=True)
class Reports:
    """All processes of one step together. ``unreached`` are commands of Python processes that started without us."""

    joined: bool
    unreached: tuple[str, ...]
    triton_versions: frozenset[str]
    gpu: bool | None
    kernels: tuple[KernelState, ...]
    choices: tuple[AutotunerChoice, ...]
    errors: tuple[str, ...]


def read_reports(folder: Path) -> Reports:
    """Merge what the processes wrote. ``gpu`` is None if none could tell.

    One that never imported Triton has left an empty file, PID.joined, and no report."""
    keys = ("triton_version", "gpu", "kernels", "choices", "errors")
    values = [read_object(path, *keys) for path in sorted(folder.glob("*.json"))]
    seen = [value["gpu"] for value in values if value["gpu"] is not None]
    kernels = {
        (variant, kernel["state"]): KernelState(variant, kernel["name"], kernel["state"], kernel["reason"])
        for value in values
        for variant, kernel in value["kernels"].items()
    }
    return Reports(
        bool(values) or any(folder.glob("*.joined")),
        tuple(dict.fromkeys(_unreached(folder))),
        frozenset(value["triton_version"] for value in values if value["triton_version"]),
        any(seen) if seen else None,
        tuple(kernels.values()),
        tuple(dict.fromkeys(AutotunerChoice(**choice) for value in values for choice in value["choices"])),
        tuple(error for value in values for error in value["errors"]),
    )


def _unreached(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob(f"*{UNREACHED_ENDING}")):
        yield from map(printable, path.read_text(errors="replace").splitlines())
