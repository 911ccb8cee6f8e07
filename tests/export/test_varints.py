"""Columns of byte strings, against the same made one by one, and put together in rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from google.protobuf.wrappers_pb2 import Int64Value  # type: ignore[import-untyped]
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kprof_inject.export.perfetto import (
    ByteColumn,
    constant,
    decimals,
    field,
    fixed64,
    merged,
    message_fields,
    strings,
    varint,
    varint_fields,
    varints,
)

# Around each power of two, where one more byte is needed or not.
INT64 = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.builds(lambda bits, more: (1 << bits) + more, st.integers(0, 62), st.integers(-2, 2)),
)
COLUMN = st.one_of(st.lists(INT64, max_size=20), st.lists(st.integers(0, 300), max_size=20))
at_any_speed = settings(deadline=None, derandomize=True)

EDGES = [0, 127, 128, (1 << 14) - 1, 1 << 14, (1 << 28) - 1, 1 << 28, (1 << 56) - 1]


def slow_varint(value: int) -> bytes:
    """As the encoding's description has it: groups of seven bits, the lowest first."""
    unsigned = value % (1 << 64)
    groups = [unsigned & 0x7F]
    while unsigned := unsigned >> 7:
        groups.append(unsigned & 0x7F)
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


def numbers(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def rows_of(column: ByteColumn) -> list[bytes]:
    return [bytes(item)[:length] for item, length in zip(column.items.tolist(), column.lengths.tolist(), strict=True)]


@at_any_speed
@given(COLUMN)
@example(EDGES)
@example([*EDGES, 1 << 56])
@example([-1, 0])
def test_a_column_of_varints_is_each_number_encoded(values: list[int]) -> None:
    assert rows_of(varints(numbers(values))) == [slow_varint(value) for value in values]


@at_any_speed
@given(INT64)
def test_one_number_is_read_back_by_protobuf(value: int) -> None:
    assert varint(value) == slow_varint(value)
    assert Int64Value.FromString(field(1, value)).value == value


@pytest.mark.parametrize("dtype", ["i2", "i4", "u4", "i8"])
def test_numbers_of_any_width_are_encoded_alike(dtype: str) -> None:
    values = [0, 127, 128, 30_000] + ([-3] if dtype[0] == "i" else [])
    assert rows_of(varints(np.array(values, dtype=dtype).astype(dtype))) == [slow_varint(value) for value in values]


@at_any_speed
@given(st.lists(INT64, max_size=20))
def test_decimals_are_the_numbers_as_text(values: list[int]) -> None:
    assert rows_of(decimals(numbers(values))) == [str(value).encode() for value in values]


@at_any_speed
@given(st.lists(INT64, max_size=20))
def test_fixed_numbers_have_eight_bytes(values: list[int]) -> None:
    assert rows_of(fixed64(numbers(values))) == [value.to_bytes(8, "little", signed=True) for value in values]


def test_strings_keep_their_zero_bytes() -> None:
    column = strings([b"", b"a\0", b"\0\0\0"])
    assert rows_of(column.at(numbers([2, 0, 1, 1]))) == [b"\0\0\0", b"", b"a\0", b"a\0"]


def test_a_column_is_empty_where_it_is_not_shown() -> None:
    shown = np.array([True, False, True])
    assert rows_of(varints(numbers([300, 300, 5])).only(shown)) == [slow_varint(300), b"", b"\5"]
    assert merged([([constant(b"ab").only(shown), constant(b".")], numbers(range(3)))]) == b"ab..ab."


ROWS = st.lists(st.tuples(st.binary(max_size=9), INT64, st.binary(max_size=3)), max_size=30)


@at_any_speed
@given(ROWS.flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(range(len(rows))))))
def test_rows_are_their_columns_side_by_side_in_any_order(
    case: tuple[list[tuple[bytes, int, bytes]], list[int]],
) -> None:
    made, places = case
    columns = [
        strings([left for left, _, _ in made]),
        varints(numbers([value for _, value, _ in made])),
        constant(b"<>"),
        strings([right for _, _, right in made]),
    ]
    expected = [left + slow_varint(value) + b"<>" + right for left, value, right in made]
    assert merged([(columns, numbers(range(len(made))))]) == b"".join(expected)
    assert merged([(columns, numbers(places))]) == b"".join(expected[places.index(at)] for at in range(len(places)))


@at_any_speed
@given(st.lists(st.tuples(INT64, st.binary(max_size=200)), max_size=20))
def test_a_column_of_messages_is_each_message(messages: list[tuple[int, bytes]]) -> None:
    texts = strings([text for _, text in messages])
    columns = [*varint_fields(3, numbers([value for value, _ in messages])), *message_fields(16, [texts])]
    expected = [field(1, field(3, value) + field(16, text)) for value, text in messages]
    assert merged([(message_fields(1, columns), numbers(range(len(messages))))]) == b"".join(expected)
