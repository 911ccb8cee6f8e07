"""Names are for people: whatever scopes are called, even all alike, every figure about them stays the same."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from altered import answer_of
from golden import FIXTURES
from renamed_scopes import (
    Naming,
    all_alike,
    by_itself,
    differing,
    in_pairs,
    made_experiment,
    made_launch,
    renamed,
    said_of,
    said_of_pair,
)
from replacing import replace

from kprof_inject.analysis.advice import advice_on
from kprof_inject.analysis.comparison.matching import identities, match_scopes
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import read_capture

REPO = Path(__file__).resolve().parent.parent
CAPTURES = ("tests/captures/matmul-one-stage", "tests/captures/matmul-three-stages", "tests/captures/matmul")
COLLIDING = (all_alike, in_pairs)

Recorded = Callable[[str], Launch]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """A capture's launch, or one that is made of a fixture."""

    def launch(name: str) -> Launch:
        path = REPO / name
        if path.is_dir():
            return read_capture(path).launches[0]
        read = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return made_launch(tmp_path / name, read.decode())

    return launch


def fixture(kernel: str, version: str = "3.6.0") -> str:
    (path,) = (FIXTURES / version / "cuda-90").glob(f"{kernel}.ttgir*")
    return str(path.relative_to(REPO))


LAUNCHES = (CAPTURES[1], fixture("tma_matmul"), fixture("ws_matmul"))


@pytest.mark.parametrize("name", LAUNCHES)
def test_scopes_of_one_name_have_the_figures_of_scopes_with_their_own(recorded: Recorded, name: str) -> None:
    launch = recorded(name)
    told = said_of(launch, by_itself)
    for colliding in COLLIDING:
        assert differing(told, said_of(launch, colliding)) == [], colliding.__name__


PAIRS = [CAPTURES[:2], (fixture("ws_matmul"), fixture("ws_matmul", "3.8.0"))]


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_two_captures_compare_alike_whatever_their_scopes_are_called(recorded: Recorded, a: str, b: str) -> None:
    """By names of their own, those of A and of B have one name that are one scope by the names of the selectors."""
    mine, theirs = recorded(a), recorded(b)
    matching = match_scopes(identities(mine.kernel), identities(theirs.kernel))
    in_a = {match.b: match.a for match in matching.matches}
    # Even, so that no scope of B alone makes a pair with one of A.
    count = 2 * len(mine.kernel.scopes.scopes)

    def of_b(naming: Naming) -> Naming:
        return lambda index: naming(in_a.get(index, count + index))

    told = said_of_pair(mine, theirs, by_itself, of_b(by_itself))
    for colliding in COLLIDING:
        assert differing(told, said_of_pair(mine, theirs, colliding, of_b(colliding))) == [], colliding.__name__


def test_a_loop_and_its_iterations_that_have_one_name(recorded: Recorded) -> None:
    """What ``--at func --at loop=work --at iter=work`` records of the demo."""
    launch = recorded(CAPTURES[0])
    plain = LaunchAnalysis.of(renamed(launch, lambda index: launch.kernel.scopes.scopes[index].name))
    same = LaunchAnalysis.of(renamed(launch, lambda index: ("func", "work", "work", "wait")[index]))
    (advice, *_), (alike, *_) = advice_on(plain), advice_on(same)
    assert (alike.text, alike.share) == (advice.text, advice.share)
    assert alike.reason == advice.reason.replace("loop[0]", "work (loop[0])")
    assert [finding.index for finding in same.findings] == [finding.index for finding in plain.findings]
    assert replace(same.limit, text="") == replace(plain.limit, text="")


def test_findings_and_roofs_have_the_key_of_the_scope_that_they_name(recorded: Recorded) -> None:
    for name in LAUNCHES:
        report = LaunchAnalysis.of(renamed(recorded(name), by_itself))
        scopes, in_flight = report.timeline.table.scopes, answer_of(report).in_flight
        flights = in_flight.flights if in_flight else ()
        for one in (*report.findings, *report.speed_of_light.roofs, *flights):
            assert one.scope == (None if one.index is None else scopes[one.index].name)


def test_delays_are_told_of_the_scope_at_whose_site_they_were(recorded: Recorded) -> None:
    """An experiment of other selectors has the records of other scopes."""
    launch = recorded(CAPTURES[0])
    experiment = made_experiment(launch, by_itself)
    records = [scope.record for scope in reversed(experiment.scopes.scopes)]
    scopes = tuple(
        msgspec.structs.replace(scope, record=record)
        for scope, record in zip(experiment.scopes.scopes, records, strict=True)
    )
    others = msgspec.structs.replace(experiment, scopes=msgspec.structs.replace(experiment.scopes, scopes=scopes))
    usual, turned = (LaunchAnalysis.of(renamed(launch, by_itself), [one]).slopes for one in (experiment, others))
    assert usual is not None and turned is not None
    assert [place.index for place in turned.places] == [0, 1, 2, 3]
    assert [place.to_json() for place in turned.places] == [place.to_json() for place in usual.places]
