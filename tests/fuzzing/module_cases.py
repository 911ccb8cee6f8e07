"""What reads a module, tried on damaged ones: never anything but a ``KprofError`` or a result, in bounded time and
memory."""

from __future__ import annotations

import contextlib
import gzip
import resource
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import msgspec
import numpy as np
from buffers import Scope
from cases import FIXTURES, sources
from module_damage import DAMAGES
from programs.child import REPO
from replacing import replace
from timelines import Ran, cta_rows, made_timeline, scope_rows
from ttgir_forms import FORMS

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.loop_metrics import loop_figures
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.pipeline.insertion import insert_module, view_of
from kprof_inject.report.diff.structure import changes_between
from kprof_inject.report.html.document import write_html
from kprof_inject.report.terminal.screens import answers_text
from kprof_inject.rewrite import apply
from kprof_inject.select.candidates import outline
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.timeline.columns import scope_columns
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.ttgir.parser import parse

MAX_SECONDS = 10
MAX_MEGABYTES = 1 << 10

SELECTORS = (
    ("func", "loop", "iter"),
    ("func", "loop[0]", "op(tt.*)"),
    ("parts",),
    ("async",),
    ("op(*dot*)", "line(1-1000)"),
    ("loop --tag zero=%c0_i32", "iter --tag row=row"),
)
# What is recorded of a launch whose module is damaged.
_RECORDED = (("func", "loop", "iter", "async"), ("func", "loop", "iter"), ("func", "loop"), ("func",))
_CTAS, _WARPS = 3, 4
_ARGUMENTS = (1 << 40, 2 << 40, 3 << 40, 512, 512, 512, 64, 64)


@dataclass(frozen=True)
class Source:
    """A module that is sound."""

    name: str
    text: str


@cache
def modules() -> tuple[Source, ...]:
    """All fixtures, the modules of captures, and the hand-written forms."""
    fixtures = sorted([*FIXTURES.glob("*/*/*.ttgir"), *FIXTURES.glob("*/*/*.ttgir.gz")])
    captured = sorted([*(REPO / "tests").glob("**/*.ttgir"), *(REPO / "kprof_inject").glob("**/*.ttgir")])
    files = {str(path.relative_to(REPO)): path.read_bytes() for path in (*fixtures, *captured)}
    texts = {name: gzip.decompress(data) if name.endswith(".gz") else data for name, data in files.items()}
    return (
        *(Source(name, text.decode()) for name, text in texts.items()),
        *(Source(form.name, form.text) for form in FORMS.values()),
    )


def damaged(source: Source, chance: Random) -> tuple[str, str]:
    """A text, and what was done to it."""
    text, done = source.text, []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        try:
            module = parse(text)
        except KprofError:
            break
        if not any(one.block is not None for one in module.walk()):
            break
        damage = chance.choice(DAMAGES)
        text = damage(module, chance)
        done.append(damage.__name__)
    return text, " ".join(done)


class Launches:
    """Launches of sound modules, made once for each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[str, Timeline] = {}

    def of(self, source: Source, text: str) -> Timeline:
        """A launch of a sound module, whose capture has another text of it."""
        if source.name not in self._made:
            self._made[source.name] = _launch(self.folder / str(len(self._made)), source)
        made = self._made[source.name]
        (made.launch.kernel.folder / "kernel.ttgir").write_text(text, newline="")
        return made


def _launch(folder: Path, source: Source) -> Timeline:
    """All scopes ran once in each warp, one in the other."""
    table = _table(source)
    depth = {index: len(list(table.around(index))) for index in range(len(table.scopes))}
    rows = scope_rows(
        [
            Ran(index, 4000 - 100 * depth[index], cta, warp, cta, iteration=0, start_record=2 * index, start_ns=1_000)
            for cta in range(_CTAS)
            for warp in range(_WARPS)
            for index in range(len(table.scopes))
        ]
    )
    rows["start_cycles"] = 10 * rows["scope"]
    rows["end_cycles"] = rows["start_cycles"] + rows["duration_cycles"]
    columns = np.zeros(len(rows), dtype=scope_columns(table.max_tags))
    for name in rows.dtype.names or ():
        columns[name] = rows[name]
    ctas = cta_rows(*((cta, cta, 0, 5_000, 5_100) for cta in range(_CTAS)))
    made = made_timeline(folder, [Scope(f"{index}") for index in depth], [columns], ctas, warps=_WARPS)
    backend, arch = ("hip", Path(source.name).parts[-2].partition("-")[2]) if "/hip-" in source.name else ("cuda", 90)
    kernel = replace(
        made.launch.kernel,
        scopes=table,
        metadata={**made.launch.kernel.metadata, "target": {"backend": backend, "arch": arch}},
        sm_count=4,
        l2_bytes=1 << 20,
        dram_bytes_per_s=1e12,
    )
    arguments = _ARGUMENTS if "matmul" in source.name else ()
    launch = replace(made.launch, kernel=kernel, grid=(_CTAS, 1, 1), arguments=arguments)
    return replace(made, table=table, launch=launch)


def _table(source: Source) -> ScopeTable:
    view = view_of(source.text, source.name, sources())
    for selectors in _RECORDED:
        with contextlib.suppress(KprofError):
            plan = insert_module(view, parse_selectors(selectors)).plan
            return ScopeTable.of(plan.table)
    return ScopeTable(())


Reader = Callable[[Source, str, Path, Launches], Any]


def _list(source: Source, text: str, folder: Path, launches: Launches) -> None:
    outline(view_of(text, source.name, sources()))


def _inserted(selectors: tuple[str, ...]) -> Reader:
    def insert(source: Source, text: str, folder: Path, launches: Launches) -> None:
        view = view_of(text, source.name, sources())
        parse(apply(view.module, make_plan(view, parse_selectors(selectors))))

    return insert


def _report(source: Source, text: str, folder: Path, launches: Launches) -> None:
    timeline = launches.of(source, text)
    report = LaunchAnalysis.of(timeline)
    answers_text([report], 100)
    msgspec.json.encode(report.to_json())
    write_html(folder / "report.html", [report])
    for index in range(len(timeline.table.scopes)):
        loop_figures(report, index)


def _diff(source: Source, text: str, folder: Path, launches: Launches) -> None:
    a, b = folder / "a.ttgir", folder / "b.ttgir"
    a.write_text(source.text, newline="")
    b.write_text(text, newline="")
    changes_between(a, b)
    changes_between(b, a)


READERS: Mapping[str, Reader] = {
    "list": _list,
    **{f"insert {' '.join(one)}": _inserted(one) for one in SELECTORS},
    "report": _report,
    "diff": _diff,
}


def refusal_of(reader: Reader, source: Source, text: str, folder: Path, launches: Launches) -> KprofError | None:
    """None if there is a result. Raises for all else, and where it takes too long or too much."""
    with _bounded():
        try:
            reader(source, text, folder, launches)
        except KprofError as error:
            error.render()
            return error
    return None


class TooSlow(Exception):
    pass


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"it takes more than {MAX_SECONDS} s")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most_bytes = pages * resource.getpagesize() + (MAX_MEGABYTES << 20)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, stop)
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, hard))
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
