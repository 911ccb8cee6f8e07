"""A fixed sample of what ``scripts/fuzz captures`` tries: damaged captures, workspaces and buffers of Proton's."""

from __future__ import annotations

import pytest
from capture_cases import Corpus, run_case

CASES = 100
SEED = 14


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


def test_damage_is_refused_with_a_word_and_changes_nothing(corpus: Corpus) -> None:
    """No traceback, no output that is not JSON, nothing written where only reading was asked, and no silence."""
    refused = sum(run_case(corpus, SEED, number)["refusal"] for number in range(CASES))
    assert CASES / 5 < refused < CASES * 4 / 5
