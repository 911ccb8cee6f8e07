"""The columns that a table of scopes has, in whatever format: a row for each scope that ran, of all launches.

Times are not rebased: they are on the globaltimer of the launch's device, so that tables of several captures of a
device can be joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeInfo
from kprof_inject.timeline.columns import SCOPE_COLUMNS
from kprof_inject.timeline.timeline import Timeline

_NO_RANK = -1
_CALLED_BY = " < "


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of texts: ``texts[code]`` for each of ``codes``."""

    texts: Sequence[str]
    codes: NDArray[np.int32]
