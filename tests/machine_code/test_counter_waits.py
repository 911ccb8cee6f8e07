"""What AMD's wait instructions wait for."""

from __future__ import annotations

import pytest
from listing import amd_function

from kprof_inject.machine_code.control_flow import waits_in
from kprof_inject.machine_code.lines import Awaited, summary_of

LOAD = "global_load_dword v1, v[2:3], off"
STORE = "global_store_dword v[2:3], v1, off"
READ = "ds_read_b32 v1, v2"
SCALAR = "s_load_dwordx2 s[2:3], s[0:1], 0x0"
FLAT = "flat_load_dwordx2 v[2:3], v[4:5]"


def awaited(*parts: str, processor: str = "gfx942") -> dict[int, list[int]]:
    """For the index of each wait, the indices of what it waits for."""
    found = amd_function(*parts, processor=processor)
    result: dict[int, list[int]] = {}
    for wait in waits_in(found):
        result.setdefault(wait.waiting, []).append(wait.awaited)
    return result


def test_all_but_the_last_have_ended() -> None:
    assert awaited(LOAD, LOAD, LOAD, "s_waitcnt vmcnt(2)", "s_waitcnt vmcnt(0)") == {3: [0], 4: [1, 2]}


def test_each_counter_is_for_itself() -> None:
    assert awaited(LOAD, READ, "s_waitcnt lgkmcnt(0)", READ, "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)") == {
        2: [1],
        4: [0, 3],
    }


def test_before_gfx10_stores_count_with_loads() -> None:
    parts = (LOAD, STORE, "s_waitcnt vmcnt(1)", "s_waitcnt_vscnt null, 0x0")
    assert awaited(*parts) == {2: [0]}
    assert awaited(LOAD, STORE, LOAD, "s_waitcnt vmcnt(1)") == {3: [0, 1]}
    assert awaited(*parts, processor="gfx1100") == {3: [1]}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((SCALAR, READ, READ, "s_waitcnt lgkmcnt(1)", "s_waitcnt lgkmcnt(0)"), {3: [1], 4: [0, 2]}),
        (
            (FLAT, LOAD, READ, "s_waitcnt vmcnt(1)", "s_waitcnt vmcnt(0)", "s_waitcnt lgkmcnt(0)"),
            {4: [0, 1], 5: [0, 2]},
        ),
        (("s_memtime s[2:3]", "s_waitcnt 0"), {1: [0]}),
    ],
)
def test_what_ends_at_any_time_has_ended_only_after_a_wait_for_all(
    parts: tuple[str, ...], expected: dict[int, list[int]]
) -> None:
    assert awaited(*parts) == expected


@pytest.mark.parametrize(
    ("instruction", "wait"),
    [
        ("global_load_b32 v1, v[2:3], off", "s_wait_loadcnt 0x0"),
        ("buffer_store_b128 v[0:3], v4, s[0:3], 0 offen", "s_wait_storecnt 0x0"),
        ("global_atomic_add_u32 v1, v2, s[2:3] scope:SCOPE_DEV", "s_wait_storecnt 0x0"),
        ("global_atomic_add_u32 v1, v1, v2, s[2:3] th:TH_ATOMIC_RETURN", "s_wait_loadcnt 0x0"),
        ("ds_load_b128 v[0:3], v4", "s_wait_dscnt 0x0"),
        ("ds_load_b128 v[0:3], v4", "s_wait_storecnt_dscnt 0x3f00"),
        ("global_load_b32 v1, v[2:3], off", "s_wait_loadcnt_dscnt 0x3f"),
        ("s_load_b64 s[2:3], s[0:1], 0x0", "s_wait_kmcnt 0x0"),
        ("global_load_async_to_lds_b128 v1, v[2:3], off", "s_wait_asynccnt 0x0"),
        ("tensor_load_to_lds s[0:3], s[4:11]", "s_wait_tensorcnt 0x0"),
    ],
)
def test_gfx12_has_a_counter_and_a_wait_for_each_kind(instruction: str, wait: str) -> None:
    assert awaited(instruction, wait, processor="gfx1250") == {1: [0]}


def test_what_a_loop_waits_for_may_be_of_its_last_iteration() -> None:
    assert awaited(
        LOAD, LOAD, ".LBB0_1:", "s_waitcnt vmcnt(1)", LOAD, "s_cbranch_scc1 .LBB0_1", "s_waitcnt vmcnt(0)"
    ) == {2: [0, 1, 3], 5: [1, 3]}  # fmt: skip


def test_the_number_outstanding_depends_on_the_path() -> None:
    assert awaited(LOAD, "s_cbranch_execz .LBB0_1", LOAD, ".LBB0_1:", "s_waitcnt vmcnt(1)", "s_waitcnt vmcnt(0)") == {
        3: [0],
        4: [0, 2],
    }


@pytest.mark.parametrize(
    "parts",
    [
        ("buffer_inv sc1", "s_waitcnt vmcnt(0)"),
        (LOAD, "s_waitcnt expcnt(0)", "s_waitcnt_depctr 0xfffe"),
        (LOAD, "s_swappc_b64 s[30:31], s[12:13]", "s_waitcnt vmcnt(0)"),  # the called function has waited
        (LOAD, "s_waitcnt vmcnt(1)"),
    ],
)
def test_nothing_is_waited_for(parts: tuple[str, ...]) -> None:
    assert awaited(*parts) == {}


def test_a_line_has_what_it_waits_for() -> None:
    found = amd_function("#3", LOAD, LOAD, "#4", "s_waitcnt vmcnt(0)", "v_add_f32_e32 v1, v1, v1", "s_endpgm")
    _, sum_ = summary_of(found).lines
    assert sum_.awaited == {Awaited(3, "global_load_dword"): 2}
