"""Rules on instructions that compute masks and addresses, of kernels that Triton compiles for sm_90."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from masked_kernels import (
    ADDRESS,
    BLOCK,
    COLUMNS,
    ROWS,
    compiled,
    evidence_of,
    issued,
    matmul,
    product,
    row_sums,
    scattered,
)
from replacing import replace
from snapshots import check

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.full_masks import full_masks
from kprof_inject.analysis.findings.wide_addresses import wide_addresses
from kprof_inject.analysis.unjudged import Unjudged

BUSY = {"instruction issue": 0.7, "ALU": 0.4, "DRAM": 0.3}
POINTERS = ("x_ptr", "y_ptr", "out_ptr")
CTAS = 64
SIZE = CTAS * BLOCK
TILE, DEPTH = 128, 64

pytestmark = pytest.mark.triton


def found_by(rule: Callable[[Evidence], Iterator[Finding | Unjudged]], evidence: Evidence) -> list[Finding]:
    return [one for one in rule(evidence) if isinstance(one, Finding)]


def product_of(
    folder: Path, size: int, even: bool = False, is_aligned: bool = False, wide: bool = False, **parts: float
) -> Evidence:
    aligned = (*POINTERS, "size") if is_aligned else POINTERS
    built = compiled(product, aligned, BLOCK=BLOCK, EVEN=even, WIDE=wide)
    arguments = (*(ADDRESS * number for number in (1, 2, 3)), size)
    return evidence_of(folder, built, (CTAS, 1, 1), arguments, parts or BUSY)


def actual_share(masked: Evidence, even: Evidence) -> float:
    """The share of the instructions that the other version of a kernel does not issue."""
    return 1 - issued(even) / issued(masked)


@pytest.mark.parametrize("is_aligned", [False, True], ids=["of each element", "of whole vectors"])
def test_masks_that_are_true_for_all_elements(tmp_path: Path, is_aligned: bool) -> None:
    evidence = product_of(tmp_path, SIZE, is_aligned=is_aligned)
    (finding,) = found_by(full_masks, evidence)
    share = finding.figures["issued_share"]
    assert isinstance(share, float)
    assert share == pytest.approx(actual_share(evidence, product_of(tmp_path, SIZE, even=True)), abs=0.1)
    assert finding.figures["accesses"] == 3
    assert bool(finding.figures["narrow_instructions"]) == (not is_aligned)
    assert len(finding.lines) == 3
    assert finding.expected == pytest.approx(0.7 * share)
    assert share <= finding.share <= 1.2 * share
    assert ("multiple of 16" in finding.advice) == (not is_aligned)


def test_the_words_on_full_masks(tmp_path: Path) -> None:
    (finding,) = found_by(full_masks, product_of(tmp_path, SIZE))
    check("analysis/findings", f"{finding.text.partition(': without')[0]}\n{finding.advice}", "full masks")


@pytest.mark.parametrize(
    ("size", "even", "parts"),
    [
        (SIZE - 1, False, BUSY),
        (SIZE, True, BUSY),
        (SIZE, False, {"instruction issue": 0.4, "DRAM": 0.9}),
        (SIZE, False, {"instruction issue": 0.2, "DRAM": 0.2}),
        (SIZE, False, {"instruction issue": 0.4, "tensor cores": 0.7}),
    ],
    ids=["a partial tile", "no masks", "DRAM is the limit", "few instructions", "tensor cores are the limit"],
)
def test_masks_that_are_needed_or_cost_nothing(tmp_path: Path, size: int, even: bool, parts: dict[str, float]) -> None:
    assert found_by(full_masks, product_of(tmp_path, size, even, **parts)) == []


def test_an_unknown_size(tmp_path: Path) -> None:
    built = compiled(product, POINTERS, BLOCK=BLOCK, EVEN=False, WIDE=False)
    assert found_by(full_masks, evidence_of(tmp_path, built, (CTAS, 1, 1), (), BUSY)) == []


def test_without_machine_code(tmp_path: Path) -> None:
    evidence = replace(product_of(tmp_path, SIZE), code=None)
    assert found_by(full_masks, evidence) == found_by(wide_addresses, evidence) == []


def matmul_of(folder: Path, k: int, even: bool = False) -> Evidence:
    built = compiled(matmul, ("a_ptr", "b_ptr", "c_ptr", "m", "n", "k"), TILE=TILE, DEPTH=DEPTH, EVEN=even)
    arguments = (ADDRESS, 2 * ADDRESS, 3 * ADDRESS, 4 * TILE, 4 * TILE, k)
    return evidence_of(folder, built, (4, 4, 1), arguments, BUSY)


def test_copies_that_the_pipeliner_masks_for_iterations(tmp_path: Path) -> None:
    """Two copies in the loop, two for each of the two stages before it, and the store."""
    evidence = matmul_of(tmp_path, 1024)
    (finding,) = found_by(full_masks, evidence)
    assert finding.figures["accesses"] == 7
    expected = actual_share(evidence, matmul_of(tmp_path, 1024, even=True))
    assert finding.figures["issued_share"] == pytest.approx(expected, abs=0.1)
    assert found_by(full_masks, matmul_of(tmp_path, 1024, even=True)) == []


def test_copies_of_a_partial_tile(tmp_path: Path) -> None:
    """Only the copies before the loop and the store never need their masks, and take few of the instructions."""
    assert found_by(full_masks, matmul_of(tmp_path, 1024 - 16)) == []


def scattered_of(folder: Path, wide: bool = True, far: int = BLOCK, stride: int = 4, **parts: float) -> Evidence:
    built = compiled(scattered, ("x_ptr", "out_ptr"), BLOCK=BLOCK, WIDE=wide)
    return evidence_of(folder, built, (CTAS, 1, 1), (ADDRESS, 2 * ADDRESS, far, stride), parts or BUSY)


def test_offsets_that_fit_into_32_bits(tmp_path: Path) -> None:
    evidence = scattered_of(tmp_path)
    (finding,) = found_by(wide_addresses, evidence)
    share = finding.figures["issued_share"]
    assert isinstance(share, float)
    assert share == pytest.approx(actual_share(evidence, scattered_of(tmp_path, wide=False)), abs=0.1)
    assert finding.figures["largest_offset"] == 63 * BLOCK + 4 * (1023 - 5)
    assert finding.expected == pytest.approx(0.7 * share)
    assert share <= finding.share <= 1.2 * share
    check("analysis/findings", f"{finding.text.partition(': in 32')[0]}\n{finding.advice}", "offsets of 64 bits")


def test_offsets_of_which_the_same_part_is_large(tmp_path: Path) -> None:
    (finding,) = found_by(wide_addresses, scattered_of(tmp_path, far=1 << 32))
    assert finding.figures["largest_offset"] == (63 << 32) + 4 * (1023 - 5)
    check("analysis/findings", finding.advice, "offsets with a large common part")


@pytest.mark.parametrize(
    ("wide", "stride", "parts"),
    [
        (False, 4, BUSY),
        (True, 1 << 27, BUSY),
        (True, 4, {"instruction issue": 0.5, "DRAM": 0.9}),
        (True, 4, {"instruction issue": 0.2, "DRAM": 0.2}),
    ],
    ids=["32 bits", "elements far apart", "DRAM is the limit", "few instructions"],
)
def test_offsets_that_are_narrow_or_cost_nothing(
    tmp_path: Path, wide: bool, stride: int, parts: dict[str, float]
) -> None:
    assert found_by(wide_addresses, scattered_of(tmp_path, wide, stride=stride, **parts)) == []


def test_comparisons_of_offsets(tmp_path: Path) -> None:
    evidence = product_of(tmp_path, SIZE, wide=True)
    (finding,) = found_by(wide_addresses, evidence)
    share = finding.figures["issued_share"]
    assert isinstance(share, float)
    assert 0.05 < share <= actual_share(evidence, product_of(tmp_path, SIZE))


def test_offsets_that_grow_by_the_same_in_each_iteration(tmp_path: Path) -> None:
    """Some compilers replace the products of 64 bits by sums, but not those of 32 bits, which may overflow."""

    def sums_of(wide: bool) -> Evidence:
        built = compiled(row_sums, ("x_ptr", "out_ptr", "width"), ROWS=ROWS, COLUMNS=COLUMNS, WIDE=wide)
        return evidence_of(tmp_path, built, (8, 1, 1), (ADDRESS, 2 * ADDRESS, 1024, 4096, 3), BUSY)

    evidence = sums_of(wide=True)
    expected = actual_share(evidence, sums_of(wide=False))
    found = found_by(wide_addresses, evidence)
    assert bool(found) == (expected > 0)
    if found:
        assert found[0].figures["issued_share"] == pytest.approx(expected, abs=0.07)
