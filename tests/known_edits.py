"""Edits of a kernel that were tried: one that wins, others that cost, are refused, or change nothing."""

from __future__ import annotations

from kprof_inject.capture.edits import Edit, EditsRecord, MeasuredGain, TriedEdits
from kprof_inject.capture.resources import Resources


def gain(won: float, error: float = 0.006, pairs: int = 100) -> MeasuredGain:
    return MeasuredGain(won=won, low=won - error, high=won + error, pairs=pairs)


def tried(kind: str, value: str, reason: str = "neighbour", **fields: object) -> TriedEdits:
    return TriedEdits(edits=(Edit(kind, value),), reason=reason, **fields)  # type: ignore[arg-type]


def known_edits(rule: str = "prologue") -> EditsRecord:
    """``num_stages=4``, which a finding of this rule proposed, wins 31.2 %, of 72.5 % at most."""
    return EditsRecord(
        name="kernel",
        variant="kernel-0",
        grid=(2, 1, 1),
        clean=Resources(registers=32, spills=0),
        clean_ns=20_000.0,
        tried=(
            tried("num_warps", "2", rule, outcome="slower", gain=gain(-0.2), results="identical", predicted=0.725),
            tried("num_warps", "16", outcome="refused", refusal="its results differ"),
            tried(
                "num_stages",
                "4",
                rule,
                outcome="faster",
                gain=gain(0.33),
                confirmed=gain(0.312),
                results="within",
                difference=3e-7,
                predicted=0.725,
                resources=Resources(registers=40, spills=0),
            ),
            tried("env", "DISABLE_LLVM_OPT=disable-lsr", outcome="same code"),
            tried("maxnreg", "24", outcome="no difference", gain=gain(0.001), results="identical"),
        ),
        best=2,
        host_ns=1 << 61,
    )
