"""A fixed sample of what ``scripts/fuzz captures`` tries: damaged captures, workspaces and buffers of Proton's."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from capture_cases import Corpus, run_case
from damage import change_ttgir, change_words, reseal

from kprof_inject.capture.reader import read_capture
from kprof_inject.errors import KprofError

CASES = 60
SEED = 14


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


def test_damage_is_refused_with_a_word_and_changes_nothing(corpus: Corpus) -> None:
    """No traceback, no output that is not JSON, nothing written where only reading was asked, and no silence."""
    refused = sum(run_case(corpus, SEED, number)["refusal"] for number in range(CASES))
    assert CASES / 5 < refused < CASES * 4 / 5


def test_what_is_sealed_again_is_read_as_far_as_it_makes_sense(corpus: Corpus, tmp_path: Path) -> None:
    """Damage that is sealed again reaches what stands behind the checksums."""
    place = next(place for place in corpus.places if place.name == "capture with waits")
    for number, damage in enumerate((change_words, change_ttgir)):
        capture = Path(shutil.copytree(place.path, tmp_path / str(number)))
        damage(capture, place.other, Random(1))
        with pytest.raises(KprofError, match="its checksum does not match"):
            read_all(capture)
        reseal(capture)
        read_all(capture)


def read_all(capture: Path) -> None:
    for launch in read_capture(capture).launches:
        launch.words()
        launch.kernel.ttgir()
