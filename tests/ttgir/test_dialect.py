"""What is known of operations by their names."""

from __future__ import annotations

import pytest
from golden import VERSIONS, fixture_id, fixtures, read

from kprof_inject.ttgir.dialect import data_operands_of, is_listed, traits_of
from kprof_inject.ttgir.parser import parse

_MISSING = "missing in kprof_inject/ttgir/dialect.py"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_operation_of_a_triton_is_in_a_table(version: str) -> None:
    unknown = {
        operation.name: fixture_id(path)
        for path in fixtures(version)
        for operation in parse(read(path), path.name).walk()
        if not is_listed(operation.name)
    }

    assert unknown == {}, _MISSING


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


@pytest.mark.parametrize(
    ("name", "traits"),
    [
        ("tt.atomic_poll", {"reads_global", "is_wait", "is_atomic", "takes_addresses"}),
        ("tt.atomic_load", {"reads_global", "is_atomic", "takes_addresses"}),
        ("tt.atomic_store", {"writes_global", "is_atomic", "takes_addresses"}),
        ("ttng.cluster_barrier", {"is_wait"}),
        ("amdg.cluster_barrier_arrive", {"is_arrival"}),
        ("ttng.clc_try_cancel", {"starts_async"}),
        ("ttng.clc_is_canceled", {"is_indexing"}),
        ("ttng.async_copy_mbarrier_arrive", {"starts_async"}),
        ("ttng.tmem_copy", {"starts_async"}),
        ("amdg.async_tdm_gather", {"starts_async", "takes_addresses"}),
        ("amdg.async_tdm_scatter", {"starts_async", "takes_addresses", "writes_global"}),
        ("amdg.async_tdm_intrinsic_wait", {"is_wait", "waits_for_async"}),
    ],
)
def test_what_newer_operations_do(name: str, traits: set[str]) -> None:
    effects = {"reads_global", "writes_global", "is_wait", "waits_for_async", "starts_async", "is_arrival"}
    others = {"is_atomic", "is_indexing", "takes_addresses"}

    assert {trait for trait in effects | others if getattr(traits_of(name), trait)} == traits
