"""The pytest fixture ``kprof_profile``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kprof_inject.api import Profile


@pytest.fixture
def kprof_profile() -> Callable[..., Profile]:
    """``kprof_inject.profile``:

    with kprof_profile(at=["func"]) as prof:
        kernel[grid](x, y)
    assert prof.timeline.scopes.size
    """
    import kprof_inject

    return kprof_inject.profile
