"""The step that inserts records into a TTGIR text or the kernels of a workspace."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from msgspec import Struct

from kprof_inject.errors import KprofError, did_you_mean
from kprof_inject.files import source_text
from kprof_inject.packages import installed_folders
from kprof_inject.quantities import listed
from kprof_inject.rewrite import apply
from kprof_inject.select.candidates import candidates
from kprof_inject.select.module_view import ModuleView, has_helpers, lowerable
from kprof_inject.select.plan import Plan, make_plan, max_records, table_json
from kprof_inject.select.python_source import Sources
from kprof_inject.select.safety import relaunch
from kprof_inject.select.selectors import Selector, parse_selectors
from kprof_inject.select.sites import Found
from kprof_inject.select.spans import USUAL_STYLE, Style
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.strings import source_files
from kprof_inject.workspace import DumpedKernel, Workspace

_MAX_CANDIDATES = 20
_OPERATION = re.compile(r"op\(([\w.]+)\)")


class Insertion(Struct, frozen=True):
    """A module, its plan (without scopes if nothing matched), and its text with the records."""

    view: ModuleView
    plan: Plan
    text: str


class KernelInsertion(Struct, frozen=True):
    """The insertion into one dumped kernel, or the reason why the kernel is left unchanged."""

    kernel: DumpedKernel
    insertion: Insertion | None
    refusal: KprofError | None
    changed_sources: tuple[Path, ...]  # the files that have changed since the dump


def sources_of(ttgir: str, snapshot: Mapping[str, str], folder: Path) -> Sources:
    """Return the sources that a module names: those of the snapshot, and files below ``folder`` or in Triton's library.

    A snapshot lacks that library and files that were not dumped. The module may be a stranger's, and opens no other.
    """
    texts = dict(snapshot)
    # A relative name does not identify a file: the folder that it starts from is unknown.
    new = [name for name in source_files(ttgir) if name not in texts and os.path.isabs(name) and os.path.isfile(name)]
    readable = (os.path.join(os.path.realpath(folder), ""), *installed_folders("triton")) if new else ()
    for name in new:
        if os.path.realpath(name).startswith(readable) and (text := source_text(Path(name))) is not None:
            texts[name] = text
    return Sources(texts)


def view_of(text: str, file: str, snapshot: Mapping[str, str]) -> ModuleView:
    """Parse the text of a ``.ttgir`` file into the view that selectors use; raise ``KprofError`` if it is invalid."""
    return ModuleView(parse(text, file), sources_of(text, snapshot, Path(file).parent))


def views_in(workspace: Workspace) -> Iterator[ModuleView | KprofError]:
    """Yield the view that selectors use of each kernel in a workspace, or the reason why it cannot be read."""
    for kernel in workspace.kernels():
        try:
            yield view_of(kernel.ttgir(), str(kernel.ttgir_path), workspace.kernel_sources(kernel.variant))
        except KprofError as error:
            yield error


def changed_sources(snapshot: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files whose text differs from the snapshot. Missing files are ignored."""
    return tuple(Path(name) for name, text in snapshot.items() if source_text(Path(name)) not in (None, text))


def insert_module(view: ModuleView, selectors: Sequence[Selector], style: Style = USUAL_STYLE) -> Insertion:
    """Plan one module. Raises ``KprofError`` if a selector matches nothing."""
    done = _planned(view, selectors, style)
    require_sites(selectors, done)
    return done


def insert_kernels(
    workspace: Workspace, selectors: Sequence[Selector], style: Style = USUAL_STYLE
) -> list[KernelInsertion]:
    """Plan the records of every dumped kernel, without writing anything.

    Raises ``KprofError`` if no kernel can take records, or if no selector matches in any kernel;
    ``unmatched_selectors`` reports the single ones.
    """
    insertions = [insert_kernel(workspace, kernel, selectors, style) for kernel in workspace.require_kernels()]
    done = [insertion.insertion for insertion in insertions if insertion.insertion is not None]
    if not done:
        raise insertions[0].refusal or KprofError("no kernel can take records")
    if not any(insertion.plan.scopes for insertion in done):
        for error in unmatched_selectors(selectors, done):
            raise error
    return insertions


def insert_kernel(
    workspace: Workspace, kernel: DumpedKernel, selectors: Sequence[Selector], style: Style = USUAL_STYLE
) -> KernelInsertion:
    """Plan the records of one dumped kernel, without writing anything; if it cannot take any, return the reason."""
    texts = workspace.kernel_sources(kernel.variant)
    changed = changed_sources(texts)
    try:
        view = view_of(kernel.ttgir(), str(kernel.ttgir_path), texts)
        return KernelInsertion(kernel, _planned(view, selectors, style), None, changed)
    except KprofError as error:
        return KernelInsertion(kernel, None, error, changed)


def write_insertions(workspace: Workspace, insertions: Sequence[KernelInsertion]) -> None:
    """Replace all plans in the workspace, and their override folders, by these."""
    workspace.clear_plans()
    for done in insertions:
        write_insertion(workspace, done)


def write_insertion(workspace: Workspace, done: KernelInsertion) -> None:
    """Write one kernel's plan and override, if it has records."""
    if done.insertion is None or not done.insertion.plan.scopes:
        return
    text = done.insertion.text
    module = done.insertion.view.module
    if has_helpers(module):  # parsing again would double the time of this step
        text = lowerable(parse(text, str(done.kernel.ttgir_path)))
    table = msgspec.structs.replace(
        done.insertion.plan.table,
        most_records=max_records(done.insertion.view, done.insertion.plan),
        relaunch=relaunch(module),
    )
    workspace.write_plan(done.kernel, table_json(table), text)


class Inserter:
    """Inserter of records into the kernels of a program, each when it is compiled."""

    def __init__(self, selectors: Sequence[str], style: tuple[str, str], *, is_by_program: bool = False) -> None:
        """Insert what ``selectors`` choose, in the style with these words.

        If the program chose them itself, one that matches nothing is an error, and there is no cheaper plan.
        """
        self._selectors = parse_selectors(selectors)
        self._style = Style(*style)
        self._is_by_program = is_by_program

    def insert(self, workspace: Workspace, kernel: DumpedKernel) -> None:
        """Plan a dumped kernel; write no plan if nothing matches. Raises ``KprofError`` if it cannot take records."""
        self._insert(workspace, kernel, self._selectors, kernel.variant)

    def insert_less(self, workspace: Workspace, kernel: DumpedKernel, plan: str) -> str:
        """Plan fewer records than those of ``plan``: no iterations, then no loops. What the user selected stays.

        Returns the name of the new plan, next to the other, which other processes may use; empty if none is possible.
        Raises as ``insert`` does.
        """
        table = workspace.scope_table(plan)
        is_default = not (self._selectors or self._is_by_program)
        present = {scope.selector for scope in table.scopes} if table and is_default else set()
        fewer = _FEWER.get(frozenset(present))
        if fewer is None:
            return ""
        name = f"{kernel.variant}-{'-'.join(fewer)}"
        self._insert(workspace, kernel, parse_selectors(fewer), name)
        return name

    def _insert(self, workspace: Workspace, kernel: DumpedKernel, selectors: Sequence[Selector], plan: str) -> None:
        done = insert_kernel(workspace, kernel, selectors, self._style)
        if done.refusal is not None:
            raise done.refusal
        if done.insertion is not None and self._is_by_program and not done.insertion.plan.scopes:
            require_sites(selectors, done.insertion)
        write_insertion(workspace, msgspec.structs.replace(done, kernel=replace(kernel, variant=plan)))


# The default selectors, and what to select instead if their records slow a kernel down.
_FEWER = {frozenset({"func", "loop", "iter"}): ("func", "loop"), frozenset({"func", "loop"}): ("func",)}


def _planned(view: ModuleView, selectors: Sequence[Selector], style: Style) -> Insertion:
    """Plan one module. Raise if the default selectors match nothing; the user's may match in another module."""
    plan = make_plan(view, selectors, style)
    done = Insertion(view, plan, apply(view.module, plan))
    if not selectors and not plan.scopes:
        require_sites([selection.selector for selection in plan.selections], done)
    return done


def require_sites(selectors: Sequence[Selector], insertion: Insertion) -> None:
    """Raise ``KprofError`` for the first selector that matches nothing in this module, with suggestions."""
    for error in unmatched_selectors(selectors, [insertion]):
        raise error


def unmatched_selectors(selectors: Sequence[Selector], insertions: Sequence[Insertion]) -> Iterator[KprofError]:
    """Yield an error with reason and suggestions for each selector that matches nothing in any of these modules."""
    for selector in selectors:
        found = [
            (insertion.view, selection.findings)
            for insertion in insertions
            for selection in insertion.plan.selections
            if selection.selector.text == selector.text
        ]
        if not any(findings.sites for _, findings in found):
            yield _no_match_error(selector, found, insertions)


def _no_match_error(
    selector: Selector, found: Sequence[tuple[ModuleView, Found]], insertions: Sequence[Insertion]
) -> KprofError:
    for view, findings in found:
        for missed in findings.missed:
            place = f"{missed.operation.name} is {missed.reason}"
            return KprofError(
                f"the selector {selector.text!r} matches only places where no record is allowed: {place}",
                where=view.module.position(missed.operation.start),
                hint="select the operation, the loop or the function around it",
            )
    if not found:
        names = sorted({insertion.view.kernel for insertion in insertions})
        hint = f"the {'kernel is' if len(names) == 1 else 'kernels are'} {', '.join(names)}"
        return KprofError(f"no kernel matches {selector.kernel!r} in the selector {selector.text!r}", hint=hint)
    dropped = [str(dropped) for _, findings in found for dropped in findings.dropped]
    why = f": {', '.join(dropped)}" if dropped else ""
    known = list(dict.fromkeys(text for view, _ in found for text in candidates(view)))
    elsewhere = " (see 'kprof-inject list')" if len(known) > _MAX_CANDIDATES else ""
    suggestion = did_you_mean(selector.site, known)
    functions = [function for view, _ in found for function in view.functions]
    places = [(function, operation) for function in functions for operation in function.operations]
    part = _OPERATION.fullmatch(selector.site)
    if part and any(part[1] in operation.name and not function.refusal(operation) for function, operation in places):
        suggestion = f"did you mean op(*{part[1]}*)? "
    return KprofError(
        f"the selector {selector.text!r} matches nothing in {', '.join(sorted({v.kernel for v, _ in found}))}{why}",
        hint=f"{suggestion}you can select: {listed(known, _MAX_CANDIDATES)}{elsewhere}",
    )
