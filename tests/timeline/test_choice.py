"""What is chosen of a capture, and what a choice that matches nothing is told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buffers import Cta, Entry, JsonWriter, Scope, buffer_words, end, kernel_json, launch_json, save_launch, start
from hypothesis import given
from hypothesis import strategies as st
from replacing import replace
from snapshots import check_cases

from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.recording import Recording
from kprof_inject.errors import KprofError
from kprof_inject.timeline.choice import Choice, NumberSet
from kprof_inject.timeline.columns import CTA_COLUMNS
from kprof_inject.timeline.timeline import Timeline, decode_launch

MATMUL = [Scope("func"), Scope("loop[0]", "loop", 0), Scope("iter[0]", "iter", 1), Scope("load a", "op", 2)]
ADD = [Scope("func"), Scope("load x", "op", 0)]


def numbers(text: str) -> NumberSet:
    return NumberSet.parse(text, "--x")


def warp(scopes: int) -> list[Entry]:
    """Scopes in each other, the first of the table outermost."""
    return [*(start(n, 100 + n) for n in range(scopes)), *(end(n, 900 - n) for n in reversed(range(scopes)))]


@pytest.fixture
def launches(tmp_path: Path) -> Sequence[Launch]:
    """Three launches of a matmul of four CTAs on SMs 10 to 12, and one of an add of two CTAs."""
    writer = JsonWriter(tmp_path / "7", {"pid": 7})
    for name, scopes, sms, warps, count in (("matmul", MATMUL, (10, 11, 12, 10), 4, 3), ("add", ADD, (3, 4), 2, 1)):
        words = buffer_words([Cta([warp(len(scopes))] * warps, sm) for sm in sms], slots=8)
        writer.add_kernel(name, kernel_json(scopes, words, warps, name=f"{name}_kernel"), "module {}\n", {})
        for index in range(count):
            launch = launch_json(words, variant=name, index=index)
            writer.add_launch(launch, memoryview(words.tobytes()))
    writer.finish()
    return read_capture(tmp_path).launches


def wanted(launches: Sequence[Launch], choice: Choice) -> list[tuple[str, int]]:
    return [(launch.kernel.variant, launch.index) for launch in choice.wanted(launches)]


def complaint(launches: Sequence[Launch], choice: Choice) -> str:
    with pytest.raises(KprofError) as caught:
        choice.wanted(launches)
    assert caught.value.exit_code == 1
    return caught.value.render()


EVERY_LAUNCH = [("matmul", 0), ("matmul", 1), ("matmul", 2), ("add", 0)]


def test_nothing_chosen_is_everything(launches: Sequence[Launch]) -> None:
    assert wanted(launches, Choice()) == EVERY_LAUNCH
    timeline = decode_launch(launches[0])
    assert Choice().keep(timeline.scopes, timeline.table).all()
    assert Choice().keep_ctas(timeline.ctas).all()
    Choice().require_ctas([timeline.ctas])


@pytest.mark.parametrize(
    ("choice", "left"),
    [
        (Choice(launches=numbers("1-")), [("matmul", 1), ("matmul", 2)]),
        (Choice(launches=numbers("0,7")), [("matmul", 0), ("add", 0)]),
        (Choice(kernels=("add*",)), [("add", 0)]),
        (Choice(kernels=("add*", "mat*")), EVERY_LAUNCH),
        (Choice(kernels=("mat*",), launches=numbers("2")), [("matmul", 2)]),
        # What a launch cannot have, it need not be decoded for.
        (Choice(ctas=numbers("2-")), [("matmul", 0), ("matmul", 1), ("matmul", 2)]),
        (Choice(warps=numbers("3")), [("matmul", 0), ("matmul", 1), ("matmul", 2)]),
        (Choice(scopes=("load x",)), [("add", 0)]),
        (Choice(scopes=("load ?",)), EVERY_LAUNCH),
        (Choice(sms=numbers("3")), EVERY_LAUNCH),
    ],
)
def test_launches_are_chosen_before_they_are_decoded(
    launches: Sequence[Launch], choice: Choice, left: list[tuple[str, int]]
) -> None:
    assert wanted(launches, choice) == left


def places(timeline: Timeline, choice: Choice) -> set[tuple[int, int, str]]:
    """CTA, warp and name of what is kept."""
    kept = timeline.scopes[choice.keep(timeline.scopes, timeline.table)]
    names = [scope.name for scope in timeline.table.scopes]
    return {(row["cta"], row["warp"], names[row["scope"]]) for row in kept}


@pytest.mark.parametrize(
    ("choice", "ctas", "warps", "names"),
    [
        (Choice(sms=numbers("10")), {0, 3}, {0, 1, 2, 3}, {"func", "loop[0]", "iter[0]", "load a"}),
        (Choice(ctas=numbers("1,3-")), {1, 3}, {0, 1, 2, 3}, {"func", "loop[0]", "iter[0]", "load a"}),
        (Choice(ctas=numbers("0-1"), sms=numbers("10")), {0}, {0, 1, 2, 3}, {"func", "loop[0]", "iter[0]", "load a"}),
        (Choice(warps=numbers("0,2")), {0, 1, 2, 3}, {0, 2}, {"func", "loop[0]", "iter[0]", "load a"}),
        (Choice(scopes=("loop[0]",)), {0, 1, 2, 3}, {0, 1, 2, 3}, {"loop[0]"}),
        (Choice(scopes=("*[0]",)), {0, 1, 2, 3}, {0, 1, 2, 3}, {"loop[0]", "iter[0]"}),
        (Choice(scopes=("func", "load*")), {0, 1, 2, 3}, {0, 1, 2, 3}, {"func", "load a"}),
        (Choice(ctas=numbers("2"), warps=numbers("1"), scopes=("func",)), {2}, {1}, {"func"}),
    ],
)
def test_scopes_are_kept_by_each_of_their_places(
    launches: Sequence[Launch], choice: Choice, ctas: set[int], warps: set[int], names: set[str]
) -> None:
    timeline = decode_launch(launches[0])
    assert places(timeline, choice) == {(cta, warp, name) for cta in ctas for warp in warps for name in names}
    assert set(timeline.ctas["cta"][choice.keep_ctas(timeline.ctas)].tolist()) == ctas


def test_a_name_without_stars_matches_itself_alone(tmp_path: Path) -> None:
    scopes = [Scope(name, record=str(n)) for n, name in enumerate(["a*", "ab", "a", "A", "a?", "[ab]", "b"])]
    timeline = decode_launch(save_launch(tmp_path, scopes, [Cta([warp(len(scopes))])], slots=16))

    def kept(glob: str) -> set[str]:
        return {name for _, _, name in places(timeline, Choice(scopes=(glob,)))}

    assert kept("a") == {"a"}
    assert kept("[ab]") == {"[ab]"}
    assert kept("a*") == {"a*", "ab", "a", "a?"}
    assert kept("a?") == {"a*", "ab", "a?"}


def test_what_a_warp_lost_is_kept_with_the_warp(tmp_path: Path) -> None:
    launch = save_launch(tmp_path, MATMUL, [Cta([warp(4)] * 2, sm) for sm in (5, 6)], slots=4)
    incomplete = decode_launch(launch).incomplete
    assert len(incomplete) == 4
    kept = incomplete[Choice(warps=numbers("1"), sms=numbers("6")).keep_warps(incomplete)]
    assert kept[["cta", "warp"]].tolist() == [(1, 1)]


def test_what_finds_nothing_is_told_what_there_is(launches: Sequence[Launch]) -> None:
    choices = {
        "a kernel by another name": Choice(kernels=("matmull*",)),
        "no such kernel": Choice(kernels=("zzz",)),
        "no such launch": Choice(launches=numbers("3-5")),
        "no such launch of this kernel": Choice(kernels=("add*",), launches=numbers("1")),
        "a scope by another name": Choice(scopes=("func", "loop[1]")),
        "no such scope": Choice(scopes=("zzz*",)),
        "no such CTA": Choice(ctas=numbers("4")),
        "no such warp": Choice(warps=numbers("8-")),
        "no launch with both": Choice(warps=numbers("3"), scopes=("load x",)),
    }
    check_cases("timeline/choices", {case: complaint(launches, choice) for case, choice in choices.items()})


def test_why_a_launch_is_not_there_is_told(launches: Sequence[Launch]) -> None:
    launch, said = launches[0], {}
    for kept in ("last", "0:2"):
        process = replace(launch.process, recording=Recording(launches=kept))
        said[kept] = complaint([replace(launch, process=process)], Choice(launches=numbers("7")))
    check_cases("timeline/kept-launches", said)


def test_of_many_names_some_are_listed(launches: Sequence[Launch]) -> None:
    kernels = [replace(launches[0], kernel=replace(launches[0].kernel, name=f"k{n}")) for n in range(100)]
    said = complaint(kernels, Choice(kernels=("zzz",)))
    assert re.findall(r"\bk\d+", said) == [f"k{n}" for n in range(12)]
    assert said.endswith("88 more")


def test_a_kernel_without_scopes_has_none_to_offer(tmp_path: Path) -> None:
    launch = save_launch(tmp_path, [], [Cta([[]])], slots=2)
    assert complaint([launch], Choice(scopes=("func",))).endswith("no scopes")
    assert complaint([launch], Choice(kernels=("k1",))).endswith(("kernels kernel", "mean kernel?"))


def test_the_warps_that_recorded_are_told(tmp_path: Path) -> None:
    launch = save_launch(tmp_path, ADD, [Cta([warp(2)] * 4)], slots=4, mode={"warps": [1, 3]})
    said = complaint([launch], Choice(warps=numbers("0,2")))
    assert "--warp 0,2 " in said
    assert said.endswith("warps 1,3 of kernel")


def ctas(*places: tuple[int, int]) -> np.ndarray[Any, Any]:
    columns = np.zeros(len(places), dtype=CTA_COLUMNS)
    columns["cta"], columns["sm"] = zip(*places, strict=True) if places else ((), ())
    return columns


def complaint_of_ctas(columns: list[np.ndarray[Any, Any]], choice: Choice) -> str:
    with pytest.raises(KprofError) as caught:
        choice.require_ctas(columns)
    assert caught.value.exit_code == 1
    return caught.value.render()


def test_where_no_chosen_cta_ran_is_told_once_it_is_known() -> None:
    ran = [ctas((0, 0), (1, 2)), ctas(), ctas((1, 3), (2, 4))]
    nothing_ran = [ctas(), ctas()]
    sm, cta, both = Choice(sms=numbers("7-")), Choice(ctas=numbers("3")), Choice(sms=numbers("1"), ctas=numbers("0"))
    elsewhere = Choice(sms=numbers("0"), ctas=numbers("1-2"))
    check_cases(
        "timeline/chosen-ctas",
        {
            "no such SM": complaint_of_ctas(ran, sm),
            "no such SM for a CTA": complaint_of_ctas(ran, both),
            "CTAs of other SMs": complaint_of_ctas(ran, elsewhere),
            "no such CTA": complaint_of_ctas(ran, cta),
            "no SM, as nothing ran": complaint_of_ctas(nothing_ran, both),
            "no CTA, as nothing ran": complaint_of_ctas(nothing_ran, cta),
        },
    )


def test_chosen_ctas_that_only_ran_are_told_of() -> None:
    choice, unrecorded = Choice(ctas=numbers("3")), [ctas((3, 1)), ctas()]
    with pytest.raises(KprofError, match="only a sample of the CTAs recorded"):
        choice.require_ctas([ctas((0, 0)), ctas((1, 2))], unrecorded)
    choice.require_ctas([ctas((0, 0)), ctas((3, 2))], unrecorded)


# Sets of numbers: what the user writes, and that a column is judged as each of its numbers is.


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
    assert str(NumberSet((0, 256))) == "0-255"
    assert str(NumberSet.parse("3,7-", "--sm")) == "3,7-"
