"""How two sequences are aligned: as well as ``difflib`` where one side was edited, in time that their lengths allow."""

from __future__ import annotations

import random
from difflib import SequenceMatcher
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprof_inject.analysis.structure.code_lines import aligned, blocks

LINES = st.lists(st.sampled_from("abcdefgh"), max_size=30)


@given(LINES, LINES)
def test_what_is_matched_is_equal_and_in_order(a: list[str], b: list[str]) -> None:
    pairs = aligned(a, b)
    assert all(a[one] == b[other] for one, other in pairs)
    assert all(one < after and other < other_after for (one, other), (after, other_after) in pairwise(pairs))
    assert len(aligned(a, a)) == len(a)


@given(LINES, LINES)
def test_blocks_cover_both_sequences(a: list[str], b: list[str]) -> None:
    found = list(blocks(a, b))
    assert [letter for in_a, _, _ in found for letter in a[in_a]] == a
    assert [letter for _, in_b, _ in found for letter in b[in_b]] == b
    assert all((a[in_a] == b[in_b]) for in_a, in_b, is_matched in found if is_matched)


def edited(lines: list[str], edits: int, chance: random.Random) -> list[str]:
    lines = [*lines]
    for number in range(edits):
        place = chance.randrange(len(lines))
        lines[place : place + chance.randrange(2)] = [f"new {number}"] * chance.randrange(2)
    return lines


@pytest.mark.parametrize("seed", range(5))
def test_an_edited_text_is_aligned_as_well_as_difflib_does(seed: int) -> None:
    chance = random.Random(seed)
    lines = [chance.choice([f"line {number}", "}", "yield", "add"]) for number in range(600)]
    other = edited(lines, 20, chance)
    matched = sum(block.size for block in SequenceMatcher(None, lines, other, autojunk=False).get_matching_blocks())
    assert len(aligned(lines, other)) >= matched - 6


class Counted(str):
    """A line that counts how often lines are compared or looked up."""

    asked = 0

    def __eq__(self, other: object) -> bool:
        Counted.asked += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        Counted.asked += 1
        return str.__hash__(self)


def questions(lines: list[str], other: list[str]) -> int:
    Counted.asked = 0
    aligned([*map(Counted, lines)], [*map(Counted, other)])
    return Counted.asked


@pytest.mark.parametrize("kinds", [1, 2, 40, 10_000])
def test_how_it_grows(kinds: int) -> None:
    """Twice the lines take about twice the steps, however many are alike."""
    taken = []
    for length in (2_000, 4_000):
        chance = random.Random(length)
        lines = [str(chance.randrange(kinds)) for _ in range(length)]
        taken.append(questions(lines, edited(lines[::-1] if kinds == 2 else lines, length // 20, chance)))
    assert taken[1] < 3 * taken[0]
