"""Tables in memory: pandas data frames and Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from buffers import Cta, Scope, save_launch
from programs.child import run_python
from tabled import NAMES, decode_ranks, rows_of

from kprof_inject import to_arrow, to_pandas
from kprof_inject.errors import KprofError
from kprof_inject.export.tables import COLUMN_TYPES
from kprof_inject.timeline.columns import SCOPE_COLUMNS
from kprof_inject.timeline.timeline import Timeline, decode_launch


@pytest.fixture(scope="module")
def timelines(tmp_path_factory: pytest.TempPathFactory) -> list[Timeline]:
    return decode_ranks(tmp_path_factory.mktemp("capture"), [None, 3])


def test_a_data_frame_has_numbers_as_they_are_and_texts_as_categories(timelines: list[Timeline]) -> None:
    types = to_pandas(timelines).dtypes
    assert {name: types[name] for name in SCOPE_COLUMNS.names or ()} == {
        name: SCOPE_COLUMNS[name] for name in SCOPE_COLUMNS.names or ()
    }
    assert set(types["name"].categories) == {"func", "iter[0]", *NAMES.values()}


def test_an_arrow_table_has_a_row_for_each_scope(timelines: list[Timeline]) -> None:
    assert to_arrow(timelines).to_pylist() == rows_of(timelines)


def test_both_have_the_same_columns(timelines: list[Timeline]) -> None:
    pd.testing.assert_frame_equal(to_arrow(timelines).to_pandas(), to_pandas(timelines))


def test_launches_without_scopes_have_the_columns(tmp_path: Path) -> None:
    launch = save_launch(tmp_path, [Scope("k")], [Cta([[]])], slots=2)
    for timelines in ([], [decode_launch(launch)]):
        assert list(to_pandas(timelines).columns) == to_arrow(timelines).column_names == list(COLUMN_TYPES)
        assert len(to_pandas(timelines)) == to_arrow(timelines).num_rows == 0
        assert to_pandas(timelines)["start_ns"].dtype == np.int64


@pytest.mark.parametrize(("make", "package"), [(to_pandas, "pandas"), (to_arrow, "pyarrow")])
def test_what_is_not_installed_is_named(
    make: Callable[[Sequence[Timeline]], Any],
    package: str,
    timelines: list[Timeline],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(KprofError, match=f"{package}, which is not installed") as caught:
        make(timelines)
    assert caught.value.hint == f"pip install {package}"


@pytest.mark.parametrize("make", [to_pandas, to_arrow])
def test_a_single_timeline_is_told_to_be_a_list(make: Callable[[Any], Any], timelines: list[Timeline]) -> None:
    with pytest.raises(KprofError, match="expected a list of timelines") as caught:
        make(timelines[0])
    assert caught.value.hint == "write [timeline]"


def test_neither_library_is_loaded_until_it_is_used(tmp_path: Path) -> None:
    program = (
        "import sys, kprof_inject.export.formats, kprof_inject.export.tables;"
        "print(sorted({'pandas', 'pyarrow'} & sys.modules.keys()))"
    )
    assert run_python("-c", program, folder=tmp_path).stdout == "[]\n"
