"""The hardware counters that are measured by default, by NVIDIA's names of the metrics.

Nsight Compute uses the same names, and ``ncu --query-metrics`` describes them. A metric that a chip lacks is left out.
Shares ending in ``elapsed`` are of the launch's time, those ending in ``active`` of the time in which an SM has work.
"""

from __future__ import annotations

import re

from kprof_inject.errors import KprofError

TIME_NS = "gpu__time_duration.sum"
SM_CYCLES = "sm__cycles_elapsed.avg"
SM_CLOCK_HZ = "sm__cycles_elapsed.avg.per_second"
SM_ACTIVE_CYCLES = "sm__cycles_active.avg"

_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"

TENSOR = "sm__pipe_tensor_cycles_active" + _ELAPSED
ISSUE = "sm__inst_issued" + _ELAPSED
ALU = "sm__inst_executed_pipe_alu" + _ELAPSED
FMA = "sm__pipe_fma_cycles_active" + _ELAPSED
FMA_HEAVY = "sm__pipe_fmaheavy_cycles_active" + _ELAPSED
FP16 = "sm__inst_executed_pipe_fp16" + _ELAPSED
FP64 = "sm__inst_executed_pipe_fp64" + _ELAPSED
SPECIAL = "sm__inst_executed_pipe_xu" + _ELAPSED
LSU = "sm__inst_executed_pipe_lsu" + _ELAPSED
UNIFORM = "sm__inst_executed_pipe_uniform" + _ELAPSED
L1 = "l1tex__throughput" + _ELAPSED
L2 = "lts__throughput" + _ELAPSED
DRAM = "dram__throughput" + _ELAPSED

DRAM_READ_BYTES = "dram__bytes_read.sum"
DRAM_WRITE_BYTES = "dram__bytes_write.sum"
L2_READ_SECTORS = "lts__t_sectors_op_read.sum"
L2_WRITE_SECTORS = "lts__t_sectors_op_write.sum"
L2_HIT_PERCENT = "lts__t_sector_hit_rate.pct"
L1_HIT_PERCENT = "l1tex__t_sector_hit_rate.pct"
L2_TO_L1_BYTES = "l1tex__m_xbar2l1tex_read_bytes.sum"
LOAD_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
LOAD_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORE_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"
STORE_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
ATOMIC_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum"
REDUCTION_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum"
L2_ATOMIC_SECTORS = "lts__t_sectors_op_atom.sum"
L2_REDUCTION_SECTORS = "lts__t_sectors_op_red.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts.sum"
SHARED_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
SHARED_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
INSTRUCTIONS = "sm__inst_executed.sum"
ISSUED = "sm__inst_issued.sum"
WARPS_ACTIVE = "sm__warps_active.avg.per_cycle_active"
WARPS_ELIGIBLE = "smsp__warps_eligible.avg.per_cycle_active"
CTAS = "sm__ctas_launched.sum"

DEFAULT_METRICS = tuple(value for name, value in list(globals().items()) if name.isupper() and not name.startswith("_"))

_METRIC = re.compile(r"[a-z]\w*(\.\w+)+")


def parse_metrics(text: str) -> tuple[str, ...]:
    """Parse ``none``, ``default``, or metrics with commas, added to the default ones; raises ``KprofError``."""
    if text in ("none", "default"):
        return () if text == "none" else DEFAULT_METRICS
    metrics = [part.strip() for part in text.split(",")]
    for metric in metrics:
        if not _METRIC.fullmatch(metric):
            raise KprofError(
                f"--counters: {metric!r} is no name of a metric",
                hint="none, default, or names such as sm__inst_executed.sum; ncu --query-metrics lists them",
                exit_code=2,
            )
    return tuple(dict.fromkeys([*DEFAULT_METRICS, *metrics]))
