"""What ``explain --question 'changed A B'`` answers, of sides whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from known_sides import HEAD_NS, ITER_NS, ITERATIONS, LAUNCHES, around, usual

from kprof_inject.errors import KprofError
from kprof_inject.report.explanation.change import answer_on_change
from kprof_inject.report.explanation.explanation_schema import Answer
from kprof_inject.report.explanation.questions import parse_question
from kprof_inject.timeline.timeline import Timeline

QUESTION = parse_question("changed A B")
WHOLE_NS = HEAD_NS + ITERATIONS * ITER_NS


def of(a: list[Timeline], b: list[Timeline]) -> Answer:
    return answer_on_change(QUESTION, a, b)


def called(side: list[Timeline], name: str) -> list[Timeline]:
    found = []
    for timeline in side:
        kernel = replace(timeline.launch.kernel, name=name, variant=name)
        found.append(replace(timeline, launch=replace(timeline.launch, kernel=kernel)))
    return found


def test_a_change_with_its_interval(tmp_path: Path) -> None:
    found = of(usual(tmp_path / "a", 1), usual(tmp_path / "b", 2, iter_ns=0.8 * ITER_NS))
    truth = -100 * 0.2 * ITERATIONS * ITER_NS / WHOLE_NS
    assert found.value is not None and found.error is not None
    assert abs(found.value - truth) < found.error < 2
    assert found.error_from == {"interval of 95 %": found.error}
    assert (found.samples, found.samples_of, found.launch) == (2 * LAUNCHES, "launches", None)
    assert found.text.startswith("B is 1.19 × faster (time -15.") and "faster" in found.text


def test_no_change_says_what_would_have_shown(tmp_path: Path) -> None:
    found = of(usual(tmp_path / "a", 1), usual(tmp_path / "b", 2))
    assert found.value is not None and found.error is not None and abs(found.value) < found.error
    assert found.text.startswith("no difference: ")


def test_of_few_launches_nothing_can_be_told(tmp_path: Path) -> None:
    found = of(usual(tmp_path / "a", 1, launches=2), usual(tmp_path / "b", 2, launches=2))
    assert (found.value, found.error, found.error_from) == (None, None, {})
    assert found.text.startswith("cannot tell: ") and "--launches all or 0:20" in found.text


def test_times_without_records_are_counted_where_they_decide(tmp_path: Path) -> None:
    a = usual(tmp_path / "a", 1, clean_ns=around(100_000, 5, 60))
    b = usual(tmp_path / "b", 2, clean_ns=around(120_000, 6, 50))
    assert (of(a, b).samples, round(of(a, b).value or 0)) == (110, 20)


def test_of_several_kernels_the_one_that_takes_most_of_the_time(tmp_path: Path) -> None:
    a = [*called(usual(tmp_path / "a1", 1, iter_ns=3000), "small"), *called(usual(tmp_path / "a2", 2), "large")]
    b = [*called(usual(tmp_path / "b1", 3, iter_ns=3000), "small"), *called(usual(tmp_path / "b2", 4), "large")]
    assert of(a, b).kernel == "large"


def test_the_verdict_is_that_of_the_side_that_cannot_be_trusted(tmp_path: Path) -> None:
    def disturbed(side: list[Timeline]) -> list[Timeline]:
        kernel = side[0].launch.kernel
        slow = replace(kernel.clean, times_ns=tuple(1.5 * ns for ns in kernel.clean.times_ns or ()))
        changed = replace(kernel, with_records=slow)
        return [replace(one, launch=replace(one.launch, kernel=changed)) for one in side]

    times = around(200_000, 5, 60)
    a, b = usual(tmp_path / "a", 1, clean_ns=times), usual(tmp_path / "b", 2, clean_ns=around(200_000, 6, 60))
    assert of(disturbed(a), disturbed(b)).verdict.level.value == "unreliable"


def test_kernels_that_are_not_in_both_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(KprofError):
        of(called(usual(tmp_path / "a", 1), "one"), called(usual(tmp_path / "b", 2), "other"))
