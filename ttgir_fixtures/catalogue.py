"""Which kernels are compiled for which targets: one row for each, as one launch would compile it.

A new kernel is a file in ``kernels`` and a row here; nothing of Triton is imported.
"""

from dataclasses import dataclass, field, replace

# Folder name: backend, architecture, warp size.
TARGETS = {
    "cuda-80": ("cuda", 80, 32),
    "cuda-90": ("cuda", 90, 32),
    "cuda-100": ("cuda", 100, 32),
    "hip-gfx942": ("hip", "gfx942", 64),
    "hip-gfx950": ("hip", "gfx950", 64),
}

# What the backends pipeline with unless told otherwise.
NUM_STAGES = {"cuda": 3, "hip": 2}

H100 = ("cuda-90",)
TMA = ("cuda-90", "cuda-100")
CUDA = ("cuda-80", "cuda-90", "cuda-100")
HIP = ("hip-gfx942", "hip-gfx950")
EVERY = CUDA + HIP
ONE_OF_EACH = ("cuda-90", "hip-gfx942")
OLDEST = ("cuda-80", "cuda-90", "hip-gfx942")
NEWEST = ("cuda-90", "cuda-100", "hip-gfx950")


@dataclass(frozen=True)
class Kernel:
    """One kernel and what its launch says of it.

    A type that ends in ":16" is that of an argument which the launcher has seen to be a multiple of 16. `options`
    are the compile options that are neither Triton's default nor the same for all kernels.
    """

    module: str
    function: str
    signature: dict[str, str]
    constexprs: dict[str, int | bool] = field(default_factory=dict)
    targets: tuple[str, ...] = H100
    num_warps: int = 4
    options: dict[str, bool] = field(default_factory=dict)


def _multiples(kind: str, *names: str) -> dict[str, str]:
    return {name: f"{kind}:16" for name in names}


SIZES = _multiples("i32", "M", "N", "K")
HALVES = _multiples("*fp16", "a_ptr", "b_ptr", "c_ptr")
STRIDES = _multiples("i32", "stride_am", "stride_bk", "stride_cm")
TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
HEADS = _multiples("*fp16", "q_ptr", "k_ptr", "v_ptr", "out_ptr") | _multiples("i32", "stride_head", "stride_row")

FP8_MATMUL = Kernel(
    "fp8_matmul",
    "fp8_matmul_kernel",
    _multiples("*fp8e4nv", "a_ptr", "b_ptr")
    | _multiples("*bf16", "c_ptr")
    | _multiples("*fp32", "a_scale_ptr", "b_scale_ptr")
    | SIZES,
    {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128},
    NEWEST,
    num_warps=8,
)

GLUON_TRANSPOSE = Kernel(
    "gluon_transpose",
    "transpose_kernel",
    _multiples("*fp32", "x_ptr", "out_ptr") | _multiples("i32", "n_rows", "n_cols"),
    {"BLOCK": 64, "LANES": 32, "WARPS": 4},
    CUDA,
)

ALL = (
    # ---- straight-line code ------------------------------------------------------------------------------
    Kernel(
        "vector_add",
        "vector_add_kernel",
        _multiples("*fp32", "x_ptr", "y_ptr", "out_ptr") | _multiples("i32", "n_elements"),
        {"BLOCK": 1024},
        EVERY,
    ),
    Kernel(
        "only_return",
        "disabled_hook_kernel",
        {"x_ptr": "*fp32:16", "n_elements": "i32"},
        {},
        EVERY,
    ),
    Kernel(
        "dropout",
        "dropout_residual_kernel",
        _multiples("*fp32", "x_ptr", "residual_ptr", "out_ptr") | {"n_elements": "i32:16", "p": "fp32", "seed": "i32"},
        {"BLOCK": 1024},
        (*H100, *HIP),
    ),
    Kernel(
        "static_range",
        "fir_filter_kernel",
        _multiples("*fp32", "x_ptr", "taps_ptr", "out_ptr") | {"n_samples": "i32:16"},
        {"TAPS": 9, "BLOCK": 512},
        ONE_OF_EACH,
    ),
    Kernel(
        "histogram_sort",
        "route_tokens_kernel",
        _multiples("*i32", "expert_ptr", "count_ptr")
        | _multiples("*fp32", "weight_ptr", "sorted_ptr")
        | {"n_tokens": "i32"},
        {"EXPERTS": 32, "BLOCK": 256},
        NEWEST,
    ),
    Kernel(
        "map_elementwise",
        "three_way_compare_kernel",
        _multiples("*i32", "x_ptr", "y_ptr", "out_ptr") | {"n_elements": "i32:16"},
        {"BLOCK": 512},
        NEWEST,
    ),
    Kernel(
        "marked_headers",
        "marked_headers_kernel",
        _multiples("*fp32", "x_ptr", "out_ptr") | _multiples("i32", "n_rows", "n_cols"),
        {"BLOCK": 256},
        ONE_OF_EACH,
    ),
    # ---- strings and names -------------------------------------------------------------------------------
    Kernel(
        "inline_asm",
        "unpack_int4_kernel",
        {"packed_ptr": "*i32:16", "scale_ptr": "*fp32:16", "out_ptr": "*fp32:16", "n_words": "i32:16"},
        {"GROUP": 16, "BLOCK": 256},
        CUDA,
    ),
    Kernel(
        "inline_asm_amd",
        "fast_reciprocal_kernel",
        _multiples("*fp32", "x_ptr", "out_ptr") | {"n_elements": "i32:16"},
        {"BLOCK": 512},
        HIP,
    ),
    Kernel(
        "debug_strings",
        "checked_gather_kernel",
        {"index_ptr": "*i32:16", "table_ptr": "*fp32:16", "out_ptr": "*fp32:16", "n_indices": "i32", "n_rows": "i32"},
        {"BLOCK": 256},
        ONE_OF_EACH,
        options={"debug": True},
    ),
    Kernel(
        "unicode_names",
        "normalisiere_kernel",
        _multiples("*fp32", "x_ptr", "out_ptr", "μ_ptr", "σ_ptr") | {"länge": "i32"},
        {"BLOCK": 512},
        NEWEST,
        options={"debug": True},
    ),
    Kernel(
        "größe_μ",
        "spannweite_kernel",
        _multiples("*fp32", "x_ptr", "out_ptr") | {"länge": "i32:16"},
        {"BLOCK": 512},
        HIP,
    ),
    # ---- loops and branches ------------------------------------------------------------------------------
    Kernel(
        "softmax",
        "softmax_kernel",
        _multiples("*fp32", "x_ptr", "out_ptr") | _multiples("i32", "row_stride", "n_cols"),
        {"BLOCK": 1024},
        EVERY,
    ),
    Kernel(
        "layer_norm",
        "layer_norm_kernel",
        _multiples("*fp16", "x_ptr", "out_ptr", "weight_ptr", "bias_ptr")
        | _multiples("*fp32", "mean_ptr", "rstd_ptr")
        | _multiples("i32", "row_stride", "n_cols")
        | {"eps": "fp32"},
        {"BLOCK": 1024},
        OLDEST,
        num_warps=8,
    ),
    Kernel(
        "layer_norm_backward",
        "layer_norm_backward_kernel",
        _multiples("*fp16", "x_ptr", "weight_ptr", "grad_out_ptr", "grad_x_ptr")
        | _multiples("*fp32", "grad_weight_ptr", "grad_bias_ptr", "mean_ptr", "rstd_ptr")
        | {"lock_ptr": "*i32:16", "row_stride": "i32:16", "n_cols": "i32:16"},
        {"GROUPS": 64, "BLOCK": 1024},
        NEWEST,
        num_warps=8,
    ),
    Kernel(
        "cross_entropy",
        "cross_entropy_kernel",
        {
            "logits_ptr": "*bf16:16",
            "labels_ptr": "*i64:16",
            "loss_ptr": "*fp32:16",
            "row_stride": "i32:16",
            "n_classes": "i32",
            "smoothing": "fp32",
        },
        {"IGNORED": -100, "BLOCK": 2048},
        EVERY,
        num_warps=8,
    ),
    Kernel(
        "rotary",
        "rotary_kernel",
        _multiples("*bf16", "x_ptr", "out_ptr")
        | _multiples("*fp32", "cos_ptr", "sin_ptr")
        | _multiples("i32", "stride_token", "stride_head")
        | {"n_heads": "i32"},
        {"BLOCK_H": 8, "HEAD_DIM": 128},
        EVERY,
    ),
    Kernel(
        "while_if",
        "hash_lookup_kernel",
        _multiples("*i32", "query_ptr", "keys_ptr", "miss_count_ptr")
        | _multiples("*fp32", "values_ptr", "out_ptr")
        | {"n_queries": "i32", "slot_mask": "i32", "default": "fp32"},
        {"EMPTY": -1, "BLOCK": 128},
        NEWEST,
    ),
    Kernel(
        "while_condition",
        "cube_root_kernel",
        _multiples("*fp32", "x_ptr", "out_ptr", "tolerance_ptr")
        | {"steps_ptr": "*i32:16", "n_elements": "i32", "max_steps": "i32"},
        {"BLOCK": 512},
        NEWEST,
    ),
    Kernel(
        "nested_if",
        "activation_kernel",
        _multiples("*fp32", "x_ptr", "out_ptr", "slope_ptr", "largest_ptr")
        | {"n_elements": "i32", "kind": "i32", "slope": "fp32", "ceiling": "fp32"},
        {"BLOCK": 512},
        OLDEST,
    ),
    Kernel(
        "early_return",
        "ragged_mean_kernel",
        {"x_ptr": "*fp32:16", "offsets_ptr": "*i32:16", "out_ptr": "*fp32:16"},
        {"BLOCK": 512},
        EVERY,
    ),
    Kernel(
        "early_returns",
        "block_sparse_row_kernel",
        _multiples("*fp32", "values_ptr", "x_ptr", "out_ptr")
        | _multiples("*i32", "columns_ptr", "row_begin_ptr")
        | {"n_rows": "i32", "threshold": "fp32"},
        {"BLOCK": 256},
        NEWEST,
    ),
    Kernel(
        "nested_loops",
        "conv2d_kernel",
        _multiples("*fp32", "x_ptr", "weight_ptr", "out_ptr", "mean_ptr")
        | {name: "i32" for name in ("channels", "height", "width", "kernel_h", "kernel_w", "out_width")},
        {"BLOCK": 256},
        OLDEST,
    ),
    Kernel(
        "loop_in_if",
        "pooled_rows_kernel",
        {"x_ptr": "*fp32:16", "lengths_ptr": "*i32:16", "out_ptr": "*fp32:16", "row_stride": "i32:16"}
        | {"n_cols": "i32:16", "use_max": "i32"},
        {"BLOCK": 512},
        NEWEST,
    ),
    # ---- combine regions ---------------------------------------------------------------------------------
    Kernel(
        "associative_scan",
        "linear_recurrence_kernel",
        _multiples("*fp32", "decay_ptr", "x_ptr", "out_ptr") | _multiples("i32", "n_steps", "n_channels"),
        {"BLOCK_T": 64, "BLOCK_C": 32},
        OLDEST,
    ),
    Kernel(
        "welford",
        "batch_stats_kernel",
        _multiples("*fp32", "x_ptr", "mean_ptr", "variance_ptr") | _multiples("i32", "n_rows", "n_cols"),
        {"BLOCK_R": 32, "BLOCK_C": 64},
        EVERY,
    ),
    # ---- helpers -----------------------------------------------------------------------------------------
    Kernel(
        "inlined_helpers",
        "quantize_rows_kernel",
        {"x_ptr": "*fp16:16", "out_ptr": "*i8:16", "scale_ptr": "*fp32:16", "row_stride": "i32:16"}
        | {"n_cols": "i32", "groups_per_row": "i32"},
        {"GROUP": 256},
        EVERY,
    ),
    Kernel(
        "two_calls_in_a_line",
        "swiglu_kernel",
        _multiples("*fp16", "x_ptr", "out_ptr") | _multiples("i32", "in_stride", "out_stride", "n_cols"),
        {"BLOCK": 1024},
        OLDEST,
    ),
    Kernel(
        "noinline_helper",
        "cosine_similarity_kernel",
        _multiples("*fp32", "x_ptr", "y_ptr", "out_ptr") | {"row_stride": "i32:16", "n_cols": "i32", "eps": "fp32"},
        {"BLOCK": 1024},
    ),
    Kernel(
        "noinline_in_loop",
        "segment_energy_kernel",
        {"x_ptr": "*fp32:16", "offsets_ptr": "*i32:16", "out_ptr": "*fp32:16"}
        | {"segments_per_program": "i32", "n_segments": "i32"},
        {"BLOCK": 512},
        OLDEST,
    ),
    Kernel(
        "nested_noinline",
        "kl_divergence_kernel",
        _multiples("*fp32", "p_ptr", "q_ptr", "out_ptr") | {"row_stride": "i32:16", "n_cols": "i32"},
        {"BLOCK": 1024},
        NEWEST,
    ),
    # ---- matrix products ---------------------------------------------------------------------------------
    Kernel(
        "matmul",
        "matmul_kernel",
        HALVES | SIZES | STRIDES,
        # Launching makes a constant of every stride that is 1.
        {"stride_ak": 1, "stride_bn": 1, "stride_cn": 1, **TILE, "GROUP_M": 8},
        EVERY,
    ),
    Kernel("marked_matmul", "marked_matmul_kernel", HALVES | SIZES | STRIDES, TILE, EVERY),
    Kernel(
        "persistent_matmul",
        "persistent_matmul_kernel",
        HALVES | SIZES | STRIDES,
        {**TILE, "GROUP_M": 8},
        (*CUDA, "hip-gfx942"),
    ),
    Kernel(
        "splitk_matmul",
        "splitk_matmul_kernel",
        _multiples("*fp16", "a_ptr", "b_ptr") | {"c_ptr": "*fp32:16"} | SIZES | STRIDES,
        {**TILE, "SPLIT_K": 4},
        OLDEST,
    ),
    Kernel(
        "gelu_matmul",
        "linear_gelu_kernel",
        _multiples("*fp16", "x_ptr", "weight_ptr", "bias_ptr", "residual_ptr", "out_ptr") | SIZES,
        {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64},
        NEWEST,
    ),
    Kernel(
        "grouped_gemm",
        "grouped_gemm_kernel",
        _multiples("*i64", "a_ptrs_ptr", "b_ptrs_ptr", "c_ptrs_ptr") | {"sizes_ptr": "*i32:16", "n_problems": "i32"},
        {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32},
        OLDEST,
    ),
    FP8_MATMUL,
    # That generation has 8-bit floats of its own.
    replace(
        FP8_MATMUL,
        signature=FP8_MATMUL.signature | _multiples("*fp8e4b8", "a_ptr", "b_ptr"),
        targets=("hip-gfx942",),
    ),
    Kernel(
        "tma_matmul",
        "tma_matmul_kernel",
        {
            "a_desc": "tensordesc<fp16[128, 64]>",
            "b_desc": "tensordesc<fp16[128, 64]>",
            "c_desc": "tensordesc<fp16[128, 128]>",
        }
        | SIZES,
        TILE,
        TMA,
    ),
    Kernel("ws_matmul", "ws_matmul_kernel", HALVES | SIZES, TILE, TMA),
    Kernel(
        "attention",
        "attention_kernel",
        HEADS | {"seq_len": "i32:16", "scale": "fp32"},
        {"CAUSAL": True, "BLOCK_M": 128, "BLOCK_N": 64, "HEAD_DIM": 64},
        EVERY,
    ),
    Kernel(
        "marked_attention",
        "marked_attention_kernel",
        HEADS | {"scale": "fp32"},
        {"BLOCK_M": 128, "BLOCK_N": 64, "HEAD_DIM": 64},
        NEWEST,
    ),
    # ---- Gluon -------------------------------------------------------------------------------------------
    GLUON_TRANSPOSE,
    replace(GLUON_TRANSPOSE, constexprs={"BLOCK": 64, "LANES": 64, "WARPS": 4}, targets=HIP),
    Kernel(
        "gluon_async_pipeline",
        "row_sum_kernel",
        {"x_ptr": "*fp32:16", "out_ptr": "*fp32:16", "row_stride": "i32:16", "n_cols": "i32:16"},
        {"BLOCK": 512, "STAGES": 3, "WARPS": 4},
        CUDA,
    ),
    Kernel(
        "gluon_warp_specialized",
        "row_sums_kernel",
        {
            "x_desc": "tensordesc<fp16[64, 64],NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)>",
            "out_ptr": "*fp32:16",
            "n_cols": "i32:16",
        },
        {"STAGES": 3, "WARPS": 4},
        TMA,
    ),
)

LEFT_OUT = {
    # gl.warp_specialize took its functions and their arguments in separate lists.
    ("3.5.1", "gluon_warp_specialized"),
}

# The five that have expected results, which lie beside them for people to read.
EXPECTED = (
    ("cuda-90", "vector_add"),  # no loop
    ("cuda-90", "matmul"),  # pipelined
    ("cuda-90", "while_if"),
    ("cuda-90", "early_return"),  # two returns
    ("cuda-100", "ws_matmul"),  # partitions
)

# Printed in FORMS too, by the versions of FORM_VERSIONS: without locations, and in MLIR's generic form.
FORMS = ("bare", "generic")
FORM_VERSIONS = ("3.6.0", "3.9.0")
IN_FORMS = (
    *EXPECTED,
    ("cuda-90", "attention"),
    ("cuda-90", "early_returns"),
    ("cuda-90", "inline_asm"),
    ("cuda-90", "map_elementwise"),
    ("cuda-90", "nested_noinline"),
    ("cuda-90", "welford"),
    ("cuda-90", "gluon_warp_specialized"),
    ("hip-gfx942", "matmul"),
    ("hip-gfx950", "unicode_names"),
)


@dataclass(frozen=True)
class Selected:
    """What is to be selected in a kernel's file of every version; `name` is that of the expected result."""

    target: str
    module: str
    name: str
    selectors: tuple[str, ...]
    split: str = "never"


# The files that have expected results for selectors of their own: a diff, and all that `insert --json` says.
SELECTED = (
    Selected("cuda-90", "marked_matmul", "markers", ("marker", "iter")),
    Selected("cuda-90", "marked_attention", "runs", ("marker",), "runs"),
    Selected("cuda-90", "inlined_helpers", "helpers", ("func", "func(_quantize)", "func(_absmax)")),
    Selected("cuda-90", "nested_noinline", "calls", ("func", "func(_log_sum_exp)", "func(_row_max)", "op(tt.load)")),
    Selected("cuda-90", "while_condition", "lines", ("loop@25=main", "line(25)", "line(26-27)=body")),
    Selected("cuda-100", "ws_matmul", "partitions", ("default", "partition", "op(*mma*)")),
    Selected("hip-gfx942", "attention", "operations", ("op(*load*)", "op(tt.dot)", "op(tt.reduce)=reduce")),
)

# Stored as text, to be read and quoted: these of FORM_VERSIONS, EXPECTED of all, and all of one version and target.
TEXTS = (
    *EXPECTED,
    ("cuda-90", "attention"),
    ("cuda-90", "layer_norm"),
    ("cuda-90", "noinline_helper"),
    ("cuda-90", "softmax"),
    ("cuda-100", "matmul"),
    ("hip-gfx942", "attention"),
    ("hip-gfx942", "matmul"),
)


def targets_of(kernel: Kernel, version: str) -> tuple[str, ...]:
    """The targets that a version of Triton compiles the kernel for."""
    return () if (version, kernel.module) in LEFT_OUT else kernel.targets


def forms_of(version: str, target: str, module: str) -> tuple[str, ...]:
    """The forms, beside the usual one, that a version prints the kernel in."""
    return FORMS if version in FORM_VERSIONS and (target, module) in IN_FORMS else ()


def is_text(version: str, target: str, module: str) -> bool:
    """Whether the kernel's IR is stored as it is, and not compressed."""
    if (version, target) == ("3.6.0", "cuda-90"):
        return True
    return (target, module) in (TEXTS if version in FORM_VERSIONS else EXPECTED)
