"""The launches in ``cases``: which rules find something, of which scope and share (see ``finding_cases``)."""

from __future__ import annotations

from pathlib import Path

import pytest
from finding_cases import CASES, Case, cases_of

ALL = {f"{path.stem}: {name}": case for path in sorted(CASES.glob("*.txt")) for name, case in cases_of(path).items()}


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_case(case: Case, tmp_path: Path) -> None:
    case.check(tmp_path)
