"""What we use of Triton that is no promise of its makers: names as ``module:attributes``."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence

ALWAYS_NEEDED = (
    "triton:knobs.cache.dir",
    "triton:knobs.cache.override_dir",
    "triton:knobs.compilation.always_compile",
    "triton:knobs.compilation.override",
    "triton:knobs.compilation.store_binary_only",
    "triton.backends:backends",
    "triton.backends.compiler:GPUTarget",
    "triton.compiler.compiler:CompiledKernel._init_handles",
    "triton.compiler.compiler:compile",
    "triton.compiler.compiler:make_backend",
    "triton.runtime._allocation:_profile_allocator.set",
    "triton.runtime.cache:get_override_manager",
    "triton.runtime.driver:driver",
    "triton._C.libtriton:ir.context",
    "triton._C.libtriton:ir.load_dialects",
    "triton._C.libtriton:ir.parse_mlir_module",
    "triton._C.libtriton:ir.pass_manager",
    "triton._C.libtriton:passes.common.add_cse",
    "triton._C.libtriton:passes.convert.add_scf_to_cf",
    "triton._C.libtriton:passes.gluon.add_inliner",
    "triton._C.libtriton:proton.BUFFER_STRATEGY.CIRCULAR",
    "triton._C.libtriton:proton.BUFFER_TYPE.GLOBAL",
    "triton._C.libtriton:proton.BUFFER_TYPE.SHARED",
    "triton._C.libtriton:proton.GRANULARITY.WARP",
    "triton._C.libtriton:proton.METRIC_TYPE.CYCLE",
    "triton._C.libtriton:proton.SAMPLING_STRATEGY.NONE",
    "triton._C.libtriton:proton.SAMPLING_STRATEGY.SELECTIVE",
    "triton._C.libtriton:proton.add_allocate_proton_shared_memory",
    "triton._C.libtriton:proton.add_convert_proton_amd_gpu_to_llvm",
    "triton._C.libtriton:proton.add_convert_proton_nvidia_gpu_to_llvm",
    "triton._C.libtriton:proton.add_convert_proton_to_protongpu",
    "triton._C.libtriton:proton.add_schedule_buffer_store",
    "triton._C.libtriton:proton.get_scope_id_names",
    "triton._C.libtriton:proton.load_dialects",
)
"""Beside these, each kind of Triton needs some of its own: see ``versions``."""


def absent_of(names: Sequence[str]) -> tuple[str, ...]:
    """Those of the names that the imported Triton does not have, dotted."""
    return tuple(name.replace(":", ".") for name in names if not _exists(*name.split(":")))


def _exists(module: str, attributes: str) -> bool:
    try:
        functools.reduce(getattr, attributes.split("."), importlib.import_module(module))
    except (ImportError, AttributeError):
        return False
    return True
