"""What is known of operations by their names."""

from __future__ import annotations

import pytest
from golden import FIXTURES, fixture_id, fixtures, read

from kprof_inject.ttgir.dialect import data_operands_of, is_listed, traits_of
from kprof_inject.ttgir.parser import parse


@pytest.mark.parametrize("version", sorted(path.name for path in FIXTURES.glob("[0-9]*")))
def test_every_operation_of_a_triton_is_in_a_table(version: str) -> None:
    unknown = {
        operation.name: fixture_id(path)
        for path in fixtures(version)
        for operation in parse(read(path), path.name).walk()
        if not is_listed(operation.name)
    }

    assert unknown == {}, "put them into kprof_inject/ttgir/dialect.py: under their traits, or into _PLAIN"


def test_names_that_no_table_has() -> None:
    assert not is_listed("ttng.fancy_load")
    assert traits_of("ttng.fancy_load").reads_memory
    assert not traits_of("x.y").is_terminator and traits_of("x.y").regions == ""


@pytest.mark.parametrize(
    ("name", "is_generic", "places"),
    [
        ("tt.store", False, (1,)),
        ("tt.descriptor_store", False, (-1,)),
        ("tt.descriptor_store", True, (1,)),
        ("amdgpu.buffer_atomic_cas", True, (2, 3)),
        ("tt.load", False, ()),
    ],
)
def test_where_data_stands_among_addresses(name: str, is_generic: bool, places: tuple[int, ...]) -> None:
    assert data_operands_of(name, is_generic=is_generic) == places
