"""Launch a kernel with records next to each other and next to work, which shows what a record costs.

Outside of loops the compiler knows each record's place in the ring. In a loop it knows that of every second record,
unless an odd number of records precedes the loop: hence the scope around the loops here.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.runtime.driver import driver

from kprof_inject.errors import KprofError
from kprof_inject.runtime.devices.process_device import devices_of_process

NUM_WARPS = 4
"""An SM has four schedulers, so no warp waits for another to issue."""
ROUNDS = 16
CHAIN_LENGTH = 64
_CTAS = 8
_LAUNCHES = 12

_CUDA_CHAIN = tl.constexpr("mov.f32 $0, $1;" + CHAIN_LENGTH * " fma.rn.f32 $0, $0, 0f3F000000, 0f3F000000;")
_HIP_CHAIN = tl.constexpr("v_mov_b32 $0, $1" + CHAIN_LENGTH * "\nv_fma_f32 $0, $0, 0.5, 0.5")


@triton.jit  # type: ignore[untyped-decorator]
def _chain(value, BACKEND: tl.constexpr):  # type: ignore[no-untyped-def]
    """Multiply and add in a chain, each step waiting for the one before.

    The compiler does not move it. The assembler may let it begin before the previous record is complete, as it does
    with any work.
    """
    if BACKEND == "hip":
        value = tl.inline_asm_elementwise(_HIP_CHAIN, "=&v,v", [value], dtype=tl.float32, is_pure=False, pack=1)
    else:
        value = tl.inline_asm_elementwise(_CUDA_CHAIN, "=&f,f", [value], dtype=tl.float32, is_pure=False, pack=1)
    return value


@triton.jit(do_not_specialize=["rounds"])  # type: ignore[untyped-decorator]
def calibration_kernel(rounds, BACKEND: tl.constexpr):  # type: ignore[no-untyped-def]
    """Make records outside of loops, in a loop without work, and in a loop with work."""
    # kprof: mark straight_0
    # kprof: mark straight_1
    # kprof: mark straight_2
    # kprof: mark straight_3
    # kprof: mark straight_4
    # kprof: mark straight_5
    # kprof: mark straight_6
    # kprof: mark straight_7
    tl.debug_barrier()
    # kprof: begin around
    for _ in range(rounds):
        # kprof: mark loop_0
        # kprof: mark loop_1
        tl.debug_barrier()
    value = rounds.to(tl.float32)
    for _ in range(rounds):
        # kprof: begin work_0
        value = _chain(value, BACKEND)
        # kprof: end work_0
        value = _chain(value, BACKEND)
        # kprof: begin work_1
        value = _chain(value, BACKEND)
        value = _chain(value, BACKEND)
        # kprof: end work_1
        value = _chain(value, BACKEND)
        value = _chain(value, BACKEND)
        # kprof: mark work_2
        tl.debug_barrier()
    # kprof: end around
    # Never true, but the assembler cannot know that, and so keeps the work.
    if value < 0:
        tl.debug_barrier()


def launch_on(device_name: str, device_uuid: str) -> None:
    """Launch the kernel some times on the device with this name and UUID, with one CTA on each of some SMs.

    If no device has the UUID, any with the name is used. Raises ``KprofError`` if this process sees none.
    """
    device = devices_of_process()
    index = _index_of(device_name, device_uuid, device.names(), device.uuids())
    backend = driver.active.get_current_target().backend
    with device.selected(index):
        for _ in range(_LAUNCHES):
            calibration_kernel[(_CTAS,)](ROUNDS, backend, num_warps=NUM_WARPS)


def triton_version() -> str:
    """Return the version of the imported Triton."""
    return str(triton.__version__)


def _index_of(name: str, uuid: str, names: list[str], uuids: list[str]) -> int:
    indices = [index for index, device_name in enumerate(names) if device_name == name]
    if not indices:
        raise KprofError(f"no {name} is visible", hint="CUDA_VISIBLE_DEVICES may hide it")
    return next((index for index in indices if uuids[index] == uuid), indices[0])
