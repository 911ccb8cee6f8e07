"""The kernels in ``cases``: where records go, what scopes span, and what is refused (see ``insertion_cases``)."""

from __future__ import annotations

import pytest
from insertion_cases import CASES, Case, cases

ALL = {f"{path.stem}: {case}": case for path in sorted(CASES.glob("*.txt")) for case in cases(path.stem)}


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_case(case: Case) -> None:
    case.check()
