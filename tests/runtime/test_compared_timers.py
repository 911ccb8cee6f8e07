"""Two GPUs compare their timers: the result, and the kernel that finds it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from programs.child import run_python
from triton import knobs

from kprof_inject.capture.peer_clocks import PeerReading
from kprof_inject.runtime.devices import peer_clocks
from kprof_inject.runtime.devices.peer_clocks import Compared, NotCompared, reading_of

TRUE_NS = 36_000
"""The device's timer is so far ahead of the reference's."""
TO_REFERENCE_NS, TO_DEVICE_NS = 700, 400
"""A time is on its way for so long."""
AT_NS = 1_764_000_000_000_000_000


def found(**changes: int) -> tuple[Compared, Compared]:
    of_reference = Compared(TRUE_NS - TO_REFERENCE_NS, 9_000, AT_NS)
    of_device = Compared(-TRUE_NS - TO_DEVICE_NS, changes.get("arrived", 9_000), AT_NS + TRUE_NS)
    return of_reference, of_device._replace(**changes)


def test_the_difference_is_between_what_both_saw() -> None:
    assert reading_of("a", "b", *found()) == PeerReading(
        reference="a",
        device="b",
        reference_ns=AT_NS,
        # The middle: off by half the difference of the ways, and certain within half their sum.
        device_ns=AT_NS + TRUE_NS - (TO_REFERENCE_NS - TO_DEVICE_NS) // 2,
        error_ns=(TO_REFERENCE_NS + TO_DEVICE_NS) // 2,
    )


def test_times_that_hardly_arrived_are_no_comparison() -> None:
    with pytest.raises(NotCompared, match="at the same time"):
        reading_of("a", "b", *found(arrived=99))


def test_a_timer_that_was_set_meanwhile_is_noticed() -> None:
    with pytest.raises(NotCompared, match="before it was written"):
        reading_of("a", "b", *found(max_ns=-TRUE_NS + TO_REFERENCE_NS + 1))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_the_kernel_is_machine_code_that_orders_its_accesses_by_system(tmp_path: Path, architecture: str) -> None:
    source, cubin = tmp_path / "kernel.ptx", tmp_path / "kernel.cubin"
    source.write_bytes(peer_clocks._PTX)
    subprocess.run(
        [knobs.nvidia.ptxas.path, f"-arch={architecture}", source, "-o", cubin], check=True, capture_output=True
    )
    listed = subprocess.run([knobs.nvidia.cuobjdump.path, "-sass", cubin], check=True, capture_output=True, text=True)
    assert "STG.E.64.STRONG.SYS" in listed.stdout
    assert "LDG.E.64.STRONG.SYS" in listed.stdout


def test_without_a_gpu_nothing_is_read(tmp_path: Path) -> None:
    ended = run_python("-m", "kprof_inject.runtime.devices.peer_clocks", folder=tmp_path)
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, '{"readings":[]}', "")
