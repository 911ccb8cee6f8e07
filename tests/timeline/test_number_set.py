"""Sets of numbers: what the user writes, and that a column is judged as each of its numbers is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from snapshots import check_cases

from kprof_inject.errors import KprofError
from kprof_inject.timeline.choice import NumberSet


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0", {0}),
        ("3,5", {3, 5}),
        ("4-7", {4, 5, 6, 7}),
        ("5-5", {5}),
        ("0,4-7,12-", {0, 4, 5, 6, 7, *range(12, 20)}),
        (" 1 , 3 - 4 ", {1, 3, 4}),
        ("7,4-6,5-8", {4, 5, 6, 7, 8}),
        ("4-10,5", {4, 5, 6, 7, 8, 9, 10}),
        ("9-,3,15", {3, *range(9, 20)}),
        ("9-,5-", set(range(5, 20))),
        ("5-9,9-", set(range(5, 20))),
        ("0-", set(range(20))),
        ("999999999", set()),
    ],
)
def test_what_is_written_is_in_it(text: str, numbers: set[int]) -> None:
    chosen = NumberSet.parse(text, "--sm")
    assert {number for number in range(20) if number in chosen} == numbers
    assert set(np.flatnonzero(chosen.among(np.arange(20))).tolist()) == numbers


UNREADABLE = [
    ("", 1),
    ("  ", 3),
    ("0,,4", 3),
    ("0,", 3),
    ("a", 1),
    ("0, x-4", 4),
    ("-5", 1),
    ("0,4:7", 3),
    ("1-2-3", 1),
    ("1.5", 1),
    ("٣", 1),
    ("1234567890", 1),
    ("0,7-4", 3),
    ("12-3", 1),
]


def refusal(text: str) -> KprofError:
    with pytest.raises(KprofError) as caught:
        NumberSet.parse(text, "--cta")
    return caught.value


def test_what_is_said_of_numbers_that_cannot_be_read() -> None:
    check_cases("timeline/numbers", {repr(text): refusal(text).render() for text, _ in UNREADABLE})


_NUMBERS = st.sets(st.integers(0, 40), max_size=12)


@given(_NUMBERS, _NUMBERS)
def test_sets_are_sets(one: set[int], other: set[int]) -> None:
    first, second = NumberSet.of(one), NumberSet.of(other)
    assert {number for number in range(50) if number in first} == one
    assert first.among(np.arange(50)).tolist() == [number in one for number in range(50)]
    assert first.meets(second) == bool(one & other)
    assert NumberSet.union([first, second]) == NumberSet.of(one | other)


@given(_NUMBERS.filter(bool), st.none() | st.integers(0, 40))
def test_its_text_reads_back_as_itself(numbers: set[int], endless: int | None) -> None:
    text = ",".join([*map(str, numbers), *([] if endless is None else [f"{endless}-"])])
    chosen = NumberSet.parse(text, "--sm")
    assert NumberSet.parse(str(chosen), "--sm") == chosen
    assert all(
        (number in chosen) == (number in numbers or (endless is not None and number >= endless)) for number in range(60)
    )


def test_its_text_is_short() -> None:
    assert str(NumberSet.of([5, 4, 0, 6, 9, 12])) == "0,4-6,9,12"
    assert str(NumberSet.below(256)) == "0-255"
    assert str(NumberSet.parse("3,7-", "--sm")) == "3,7-"
    assert NumberSet.below(0) == NumberSet.of([])
    assert 0 not in NumberSet.below(0)
