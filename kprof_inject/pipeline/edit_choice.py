"""Choose which edits of a kernel to try, with which grid, and say how to use those that won.

The choice follows from the findings on the kernel's launch, and from what has won so far.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from shlex import quote

from msgspec import Struct

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.limits.limit import Limit
from kprof_inject.analysis.limits.rates import DRAM, L2, L2_TO_SM
from kprof_inject.capture.edits import (
    COLUMNS,
    COLUMNS_REVERSED,
    REVERSED,
    AppliedEdits,
    Edit,
    EditsRecord,
    grid_of,
)
from kprof_inject.capture.schema import DumpedKernelRecord, Grid
from kprof_inject.errors import KprofError, Position
from kprof_inject.runtime.worker.edit import EditRefused, KernelToEdit
from kprof_inject.runtime.worker.edit_kinds import KINDS, OTHER_CONSTANTS, in_source, with_options
from kprof_inject.workspace import Workspace

MAX_BUILDS = 12  # maximum number of builds in each round

ASKED_FOR, NEIGHBOUR = "asked for", "neighbour"
_VALUES_OF_FINDING = 4


class Proposal(Struct, frozen=True):
    """Edits to try together, and why: the name of a finding, or one of the words above.

    ``predicted`` is the upper bound of the gain by the finding, if the edits do what it advises.
    """

    edits: tuple[Edit, ...]
    reason: str
    predicted: float | None = None


# Tables name steps: KIND+ and KIND- are a kind's next values up and down, KIND=VALUE is an edit.
_COLUMNS = (f"program_order={COLUMNS_REVERSED}", f"program_order={COLUMNS}")
_GROUPED = tuple(f"program_order=grouped:{rows}" for rows in (8, 4, 16))
_LAST_FIRST = f"program_order={REVERSED}"

# The edits that may help against what each rule finds, most promising first. Other rules propose none.
_BY_RULE: Mapping[str, tuple[str, ...]] = {
    "not-pipelined": ("num_stages+", "num_warps+"),
    "too-few-stages": ("num_stages+",),
    "first-iterations": ("num_stages-", "num_stages+"),
    "prologue": ("num_warps+", "num_warps-"),
    "epilogue": ("num_warps+", "num_warps-"),
    "exposed-loads": ("loop_stages+", "num_stages+", "num_warps+", "maxnreg-"),
    "barriers": ("num_warps-", "num_stages+"),
    "low-fill": ("num_warps+", "num_stages+"),
    "between-ctas": ("num_warps-", "maxnreg-", "num_stages-"),
    "tail": (_LAST_FIRST, "num_warps+", "num_warps-"),
    "uneven-ctas": (_LAST_FIRST, *_COLUMNS, *_GROUPED),
    "imbalanced-warps": ("num_warps-",),
    "bank-conflicts": ("num_warps+", "num_warps-"),
    "uncoalesced": ("num_warps+", "num_warps-"),
    "small-ctas": ("num_warps-",),
    "few-warps": ("num_warps+", "loop_stages+", "maxnreg-", "num_stages-"),
    "l2-reuse": (*_GROUPED, _LAST_FIRST),
    "loop-invariant": ("num_warps+", "num_warps-"),
    "small-tiles": ("num_warps+", "num_stages+", _GROUPED[0]),
    "units-in-turn": ("num_warps+", "num_stages+", "maxnreg-", "num_stages-"),
    "special-functions": ("num_warps+", "num_stages+"),
    "reduction-in-loop": ("num_warps-", "num_warps+"),
    "atomics": ("num_warps+", "num_warps-"),
    "spills": ("num_warps+", "maxnreg+", "num_stages-"),
}

# Edits of the loops that each rule's finding may concern, too. They follow the edits of all findings, so that none of
# those is left out.
_ALSO_BY_RULE: Mapping[str, tuple[str, ...]] = {
    "not-pipelined": ("loop_stages+",),
    "too-few-stages": ("loop_stages+",),
    "first-iterations": ("loop_stages-",),
}

# The kinds of edits that do what a rule advises, so that its bound is theirs. Other edits only might help against it.
_REMEDIES: Mapping[str, tuple[str, ...]] = {
    "not-pipelined": ("num_stages", "loop_stages"),
    "too-few-stages": ("num_stages", "loop_stages"),
    "exposed-loads": ("num_stages", "loop_stages"),
    "few-warps": ("num_warps", "loop_stages", "num_stages"),
    "barriers": ("num_warps",),
    "spills": ("num_warps", "maxnreg"),
    "l2-reuse": ("program_order",),
    "uneven-ctas": ("program_order",),
}

_BY_UNIT: Mapping[str, tuple[str, ...]] = {
    DRAM: (_GROUPED[0],),
    L2: (_GROUPED[0], "num_warps+"),
    L2_TO_SM: (_GROUPED[0], "num_warps+"),
}
_NEIGHBOURHOOD: tuple[str, ...] = ("num_stages+", "num_warps+", "num_warps-", "num_stages-", "maxnreg-")


def edits_for(
    findings: Sequence[Finding], limit: Limit | None, kernel: KernelToEdit, asked_for: Sequence[tuple[Edit, ...]] = ()
) -> list[Proposal]:
    """Return the edits to try first: those the user asked for alone, if any.

    Otherwise all values of constants that the user named, and at most ``MAX_BUILDS`` others: those that the findings
    propose, which are sorted by the largest possible gain; then those against the limit; then what else the findings
    propose; then the options next to the present ones. If registers spill, edits that leave fewer are last: they take
    the longest to compile.
    """
    if asked_for:
        each = [Proposal(edits, ASKED_FOR) for edits in asked_for]
        all_edits = tuple(edit for edits in asked_for for edit in edits)
        can_be_together = len(asked_for) > 1 and len({edit.kind for edit in all_edits}) == len(all_edits)
        return [*each, Proposal(all_edits, ASKED_FOR)] if can_be_together else each
    named = [Proposal((Edit(OTHER_CONSTANTS, one.text),), ASKED_FOR) for one in kernel.others]
    proposals: dict[Edit, Proposal] = {}
    for proposal in _proposed(findings, limit, kernel):
        proposals.setdefault(proposal.edits[0], proposal)
    kinds = ("num_warps", "maxnreg") if kernel.clean.spills else ()
    slowest = {Edit(kind, value) for kind in kinds for value in KINDS[kind].fewer(kernel)}
    return [*named, *sorted(proposals.values(), key=lambda one: one.edits[0] in slowest)[:MAX_BUILDS]]


def _proposed(findings: Sequence[Finding], limit: Limit | None, kernel: KernelToEdit) -> Iterator[Proposal]:
    yield from _by_findings(findings, kernel, _BY_RULE)
    for unit in limit.units if limit is not None and limit.is_known else ():
        for step in _BY_UNIT.get(unit, ()):
            yield from (Proposal((edit,), f"limit {unit}") for edit in _edits_of(step, kernel))
    yield from _by_findings(findings, kernel, _ALSO_BY_RULE)
    for step in (*_NEIGHBOURHOOD, "env+"):
        yield from (Proposal((edit,), NEIGHBOUR) for edit in _edits_of(step, kernel))


def _by_findings(
    findings: Sequence[Finding], kernel: KernelToEdit, steps: Mapping[str, tuple[str, ...]]
) -> Iterator[Proposal]:
    for finding in findings:
        remedies = _REMEDIES.get(finding.rule, ())
        for step in steps.get(finding.rule, ()):
            for edit in _edits_of(step, kernel, _VALUES_OF_FINDING):
                # The finding may know the gain of an edit's value; its share is the most.
                known = finding.figures.get(edit.value)
                promise = max(min(known if isinstance(known, float) else 1.0, finding.share, 1.0), 0.0)
                yield Proposal((edit,), finding.rule, promise if edit.kind in remedies else None)


def _edits_of(step: str, kernel: KernelToEdit, max_count: int = 1) -> list[Edit]:
    name, is_edit, wanted = step.partition("=")
    if is_edit:
        return [Edit(name, wanted)] if wanted in KINDS[name].more(kernel) else []
    kind = KINDS[step[:-1]]
    values = kind.more(kernel) if step.endswith("+") else kind.fewer(kernel)
    return [Edit(kind.name, value) for value in values[:max_count]]


def edits_after(
    winners: Sequence[tuple[Edit, ...]], kernel: KernelToEdit, tried: Sequence[tuple[Edit, ...]]
) -> list[Proposal]:
    """Return the edits to try next, at most ``MAX_BUILDS``: those of winners together with others.

    ``winners`` are sorted, the best first; ``tried`` are not tried again.
    """
    known = set(map(frozenset, tried))
    found: dict[frozenset[Edit], Proposal] = {}
    # What moves on from the second best may pass what moves on from the best.
    for place, winner in enumerate(winners):
        kinds = {edit.kind for edit in winner}
        others = [other for other in winners[place + 1 :] if kinds.isdisjoint(edit.kind for edit in other)]
        for edits in (*((*winner, *other) for other in others), *_moved(winner, kernel)):
            if frozenset(edits) not in known:
                found.setdefault(frozenset(edits), Proposal(edits, NEIGHBOUR))
    return list(found.values())[:MAX_BUILDS]


def _moved(best: tuple[Edit, ...], kernel: KernelToEdit) -> Iterator[tuple[Edit, ...]]:
    try:
        edited = with_options(kernel, best)
    except EditRefused:
        return
    for step in _NEIGHBOURHOOD:
        for edit in _edits_of(step, edited):
            yield (*(one for one in best if one.kind != edit.kind), edit)
    for edit in best:
        if edit.kind == "program_order":  # it has no direction: all others are next
            rest = tuple(one for one in best if one is not edit)
            values = KINDS[edit.kind].more(kernel)
            yield from ((*rest, Edit(edit.kind, value)) for value in values if value != edit.value)


_OF_CONFIG = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Options that ``triton.Config`` has parameters for; it passes others on with the kernel's arguments."""
_IR_OVERRIDE = "ir_override"
_ONE_CTA = ("num_ctas", 1)


def how_to_apply(workspace: Workspace, record: EditsRecord, kernel: DumpedKernelRecord) -> AppliedEdits | None:
    """Explain how to use a kernel's best edits; None if none won."""
    winner = record.winner
    if winner is None or (gain := winner.final_gain) is None:
        return None
    options = {name: value for name, value in winner.options.items() if name in kernel.options}
    environment = {name: str(value) for name, value in winner.options.items() if name not in kernel.options}
    path = None
    if winner.changes_ttgir:
        path = workspace.edited_ttgir_path(workspace.kernel(record.variant)).absolute()
        # Triton then replaces the kernel's TTGIR by a file in the layout that it looks up.
        environment |= {"TRITON_KERNEL_OVERRIDE": "1", "TRITON_OVERRIDE_DIR": str(path.parents[1])}
        environment["TRITON_ALWAYS_COMPILE"] = "1"
    of_config = {**options, _IR_OVERRIDE: str(path)} if path and _IR_OVERRIDE in kernel.options else options
    named = {name: of_config.get(name, kernel.options.get(name)) for name in (*_OF_CONFIG, _IR_OVERRIDE)}
    words = [f"{name}={value!r}" for name, value in named.items() if value is not None and (name, value) != _ONE_CTA]
    others = {**winner.constants, **{name: value for name, value in of_config.items() if name not in named}}
    config = f"triton.Config({others!r}, {', '.join(words)})" if of_config or winner.constants else None
    source = in_source(winner.edits)
    variables = " ".join(f"{name}={quote(value)}" for name, value in environment.items())
    return AppliedEdits(
        kernel=record.name,
        variant=record.variant,
        edits=winner.edits,
        gain=gain,
        options=options,
        triton_config=config,
        ttgir=str(path) if path else None,
        environment=environment,
        command=f"{variables} PROG" if environment and not (options or source or winner.constants) else None,
        source=source,
        constants=winner.constants,
    )


_FORMS = "an expression such as cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N), or up to three with commas between them"
_MAX_LENGTH = 1 << 10

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Mapping[str, Callable[..., int]] = {"cdiv": lambda a, b: -(-a // b), "min": min, "max": max}


def named_grid(expression: str, numbers: Mapping[str, int]) -> Grid:
    """Return the grid that an expression gives. Raises ``KprofError``."""
    try:
        tree = ast.parse(expression[:_MAX_LENGTH].strip(), mode="eval").body
        parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
        sizes = [_value(part, numbers, expression) for part in parts]
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError, TypeError) as error:
        raise _error(expression, 0, f"cannot compute the grid {expression!r}: {error}", _FORMS) from None
    if (grid := grid_of(sizes)) is None:
        raise _error(expression, 0, f"the grid {sizes} is none of one to three sizes from 1", _FORMS)
    return grid


def _value(node: ast.expr, numbers: Mapping[str, int], text: str) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in numbers:
            known = ", ".join(sorted(numbers)) or "none"
            raise _error(text, node.col_offset, f"{node.id} is no number of the launch", f"these are: {known}")
        return numbers[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, numbers, text), _value(node.right, numbers, text))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and not node.keywords:
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr  # triton.cdiv is cdiv
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(argument, numbers, text) for argument in node.args))
    raise _error(text, node.col_offset, "a grid cannot have this", f"it has +, -, *, //, %, {', '.join(_FUNCTIONS)}")


def _error(text: str, offset: int, what: str, hint: str) -> KprofError:
    return KprofError(what, where=Position("--grid", 1, offset + 1, text), hint=hint, exit_code=2)
