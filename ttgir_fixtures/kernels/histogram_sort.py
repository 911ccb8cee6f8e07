"""`tt.histogram`, `tt.gather` and a bitonic sort: many reshapes and reductions from few lines."""

import triton
import triton.language as tl


@triton.jit
def route_tokens_kernel(
    expert_ptr, weight_ptr, sorted_ptr, count_ptr, n_tokens, EXPERTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Order BLOCK tokens by their expert, count those of each expert, and weigh them by their expert's weight."""
    block = tl.program_id(0)
    tokens = block * BLOCK + tl.arange(0, BLOCK)
    experts = tl.load(expert_ptr + tokens, mask=tokens < n_tokens, other=EXPERTS - 1)
    counts = tl.histogram(experts, EXPERTS)
    tl.store(count_ptr + block * EXPERTS + tl.arange(0, EXPERTS), counts)

    # The token's place in the low bits makes the order of equals the one that they came in.
    ordered = tl.sort(experts * BLOCK + tl.arange(0, BLOCK))
    weights = tl.load(weight_ptr + tl.arange(0, EXPERTS))
    weight = tl.gather(weights, ordered // BLOCK, axis=0)
    tl.store(sorted_ptr + tokens, (ordered % BLOCK).to(tl.float32) * weight, mask=tokens < n_tokens)
