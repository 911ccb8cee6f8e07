"""Where the most items agree, against counting at every place where that can change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kprof_inject.export.launch_matching import Agreement, Option, agreements

OPTIONS = st.lists(
    st.builds(
        lambda item, choice, least, length: Option(item, choice, least, least + length),
        st.integers(0, 5),
        st.integers(0, 5),
        st.integers(-20, 20),
        st.integers(-3, 8),
    ),
    max_size=12,
)


def agreeing(options: list[Option], shift_ns: int, slack_ns: int) -> int:
    return len(
        {
            option.item
            for option in options
            if option.min_shift_ns - slack_ns <= shift_ns <= option.max_shift_ns + slack_ns
        }
    )


@given(OPTIONS, st.integers(0, 3))
def test_the_first_is_where_most_items_agree(options: list[Option], slack_ns: int) -> None:
    found = agreements(options, slack_ns)
    most = max(agreeing(options, shift, slack_ns) for shift in range(-40, 41))
    assert (found[0].items if found else 0) == most


@given(OPTIONS, st.integers(0, 3))
def test_in_each_as_many_agree_as_it_says(options: list[Option], slack_ns: int) -> None:
    for agreement in agreements(options, slack_ns):
        for shift_ns in range(agreement.min_shift_ns, agreement.max_shift_ns + 1):
            assert agreeing(options, shift_ns, slack_ns) == agreement.items


def test_an_item_counts_once_however_many_options_it_has() -> None:
    options = [Option(0, 0, 0, 10), Option(0, 1, 5, 15), Option(1, 2, 7, 8)]
    assert agreements(options, 0)[0] == Agreement(2, 7, 8)


def test_without_options_nothing_agrees() -> None:
    assert agreements([], 5) == []
