"""The insert step: from a text or a workspace to instrumented TTGIR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kprof_inject.errors import KprofError
from kprof_inject.rewrite import apply
from kprof_inject.select.plan import Plan, candidates, make_plan
from kprof_inject.select.scope_table import scope_table
from kprof_inject.select.selectors import Selector
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse
from kprof_inject.workspace import DumpedKernel, Workspace


@dataclass(frozen=True, slots=True)
class KernelInsertion:
    """What became of one dumped kernel: its plan (of no scopes if nothing matched), or why it was left alone."""

    kernel: DumpedKernel
    plan: Plan | None
    refusal: KprofError | None


def insert_module(module: Module, selectors: Sequence[Selector]) -> tuple[Plan, str]:
    """The plan for one module and its instrumented text. Raises ``KprofError`` if a selector finds nothing."""
    plan = make_plan(module, selectors)
    _require_sites(selectors, [plan], [module])
    return plan, apply(module, plan)


def insert_workspace(workspace: Workspace, selectors: Sequence[Selector]) -> list[KernelInsertion]:
    """Plan every dumped kernel anew and write the override folders.

    A kernel that cannot take records is left alone, and says why. Raises ``KprofError`` if no kernel can, or if a
    selector finds nothing in any kernel.
    """
    kernels = workspace.kernels()
    if not kernels:
        raise KprofError(
            f"{workspace.folder} holds no kernels",
            hint=f"dump them: kprof-inject dump -o {workspace.folder} -- PROG",
        )
    modules, insertions, texts = [], [], []
    for kernel in kernels:
        try:
            module = parse(kernel.ttgir(), str(kernel.ttgir_path))
            plan = make_plan(module, selectors)
            modules.append(module)
            texts.append(apply(module, plan))
            insertions.append(KernelInsertion(kernel, plan, None))
        except KprofError as error:
            texts.append("")
            insertions.append(KernelInsertion(kernel, None, error))
    plans = [insertion.plan for insertion in insertions if insertion.plan is not None]
    if not plans:
        raise insertions[0].refusal or KprofError("no kernel can take records")
    _require_sites(selectors, plans, modules)

    workspace.clear_plans()
    for insertion, text in zip(insertions, texts, strict=True):
        if insertion.plan is not None and insertion.plan.scopes:
            workspace.write_plan(insertion.kernel, scope_table(insertion.plan), text)
    return insertions


def _require_sites(selectors: Sequence[Selector], plans: Sequence[Plan], modules: Sequence[Module]) -> None:
    found = {text for plan in plans for text in plan.sites_by_selector}
    for selector in selectors:
        if selector.is_required and selector.text not in found:
            known = dict.fromkeys(text for module in modules for text in candidates(module))
            names = sorted({plan.kernel for plan in plans})
            raise KprofError(
                f"the selector {selector.text!r} finds nothing in {', '.join(names)}",
                hint=f"what there is to select: {', '.join(known)}",
            )
