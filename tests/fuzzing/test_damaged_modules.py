"""A sample of modules whose operands, counts, types, attributes, regions and numbers do not fit: whatever reads TTGIR
gives a result or a ``KprofError``, in bounded time and memory."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from module_cases import READERS, Launches, Source, damaged, modules, refusal_of

from kprof_inject.errors import KprofError

CASES = 15
MANY_CASES = 6000
SEED = 36


def run_cases(numbers: range, folder: Path) -> dict[str, int]:
    """How many cases each reader refuses."""
    launches, refused = Launches(folder / "launches"), dict.fromkeys(READERS, 0)
    sources = modules()
    for number in numbers:
        # A prime, so that a small sample has modules of all versions and targets.
        source = sources[number * 397 % len(sources)]
        text, how = damaged(source, Random(f"{SEED}:{number}"))
        for name, reader in READERS.items():
            try:
                refused[name] += refusal_of(reader, source, text, folder, launches) is not None
            except Exception as error:
                error.add_note(f"case {number}: {source.name}, {name}: {how}")
                raise
    return refused


def test_damaged_modules_are_read_or_refused(tmp_path: Path) -> None:
    refused = run_cases(range(CASES), tmp_path)
    assert refused["report"] == 0  # a kernel that cannot be judged is no failure of its report
    assert 0 < refused["list"] < CASES / 2


@pytest.mark.exhaustive
def test_many_damaged_modules_are_read_or_refused(tmp_path: Path) -> None:
    assert run_cases(range(CASES, MANY_CASES), tmp_path)["report"] == 0


LOOP = """\
module {
  tt.func public @k(%p: !tt.ptr<i32>, %n: i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %x = tt.get_program_id x : i32
    %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32, #l>
    %end:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %c0, %b = %x) -> (i32, i32)  : i32 {
      %sum = arith.addi %a, %b : i32
      scf.yield %sum, %i : i32, i32
    }
    %least = "tt.reduce"(%r) <{axis = 0 : i32}> ({
    ^bb0(%u: i32, %v: i32):
      %w = arith.minsi %u, %v : i32
      tt.reduce.return %w : i32
    }) : (tensor<64xi32, #l>) -> i32
    tt.return
  }
}
"""


@pytest.mark.parametrize(
    ("printed", "damage"),
    [
        *(("%end:2", f"%end:{count}") for count in (100, 400_000_000, 1 << 63, 10**30, "9" * 5000)),
        *(("%least =", f"%least:{count} =") for count in (400_000_000, 1 << 63)),
        *(("%sum =", f"%sum:{count} =") for count in (400_000_000, 1 << 63)),
        ("%c1 = arith.constant 1", "%c1 = arith.constant " + "9" * 5000),
    ],
)
def test_a_count_that_is_not_listed_is_refused_at_its_place(printed: str, damage: str, tmp_path: Path) -> None:
    source = Source("loop", LOOP)
    text = LOOP.replace(printed, damage)
    line = next(number for number, line in enumerate(text.splitlines(), 1) if damage in line)
    launches = Launches(tmp_path / "launches")
    for name, reader in READERS.items():
        refusal = refusal_of(reader, source, text, tmp_path, launches)
        if name == "report":
            assert refusal is None
        else:
            assert isinstance(refusal, KprofError) and refusal.where is not None and refusal.where.line == line, name
