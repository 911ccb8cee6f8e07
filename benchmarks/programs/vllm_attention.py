"""vLLM's attention in a loop: prompts, then tokens one by one, and the cache's writes; ``--vllm`` has its source.

Its kernels need nothing else of vLLM: what they import of it is replaced.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import steps
import torch
import triton
import triton.language as tl

PROMPTS, PROMPT, DECODED, CONTEXT = 4, 1024, 8, 4096
QUERY_HEADS, KV_HEADS, HEAD, BLOCK = 32, 8, 128, 16


def load(folder: Path, name: str) -> Any:
    """Import a file of vLLM's without the package."""
    platform = SimpleNamespace(
        fp8_dtype=lambda: torch.float8_e4m3fn,
        is_rocm=lambda: False,
        is_cuda=lambda: True,
        is_rocm_aiter_available=lambda: False,
        get_device_capability=lambda: torch.cuda.get_device_capability(),
        has_device_capability=lambda capability: True,
    )
    parts: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.platforms": {"current_platform": platform},
        "vllm.triton_utils": {"tl": tl, "triton": triton},
    }
    for module, values in parts.items():
        vars(sys.modules.setdefault(module, ModuleType(module))).update(values)
    spec = importlib.util.spec_from_file_location(name, folder / "vllm/attention/ops" / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def main() -> None:
    parser = steps.parser(__doc__)
    parser.add_argument("--vllm", type=Path, required=True, metavar="FOLDER", help="vLLM's source, such as of 0.11.0")
    arguments = parser.parse_args()
    unified = load(arguments.vllm, "triton_unified_attention").unified_attention
    merge = load(arguments.vllm, "triton_merge_attn_states").merge_attn_states
    write = load(arguments.vllm, "triton_reshape_and_cache_flash").triton_reshape_and_cache_flash
    decode = load(arguments.vllm, "triton_decode_attention").decode_attention_fwd
    torch.manual_seed(0)
    options = {"device": "cuda", "dtype": torch.bfloat16}
    blocks = 8 * CONTEXT // BLOCK
    keys, values = (torch.randn(blocks, BLOCK, KV_HEADS, HEAD, **options) for _ in range(2))
    table = torch.randperm(blocks, device="cuda", dtype=torch.int32).view(8, -1)
    one = torch.ones((), device="cuda")
    workspace = torch.empty(DECODED, QUERY_HEADS, 8, HEAD + 1, device="cuda")

    def attend(sequences: int, tokens: int, context: int) -> None:
        count = sequences * tokens
        query, out = torch.randn(count, QUERY_HEADS, HEAD, **options), torch.empty(count, QUERY_HEADS, HEAD, **options)
        new = torch.randn(2, count, KV_HEADS, HEAD, **options)
        slots = torch.arange(count, device="cuda")
        write(new[0], new[1], keys, values, slots, "auto", one, one)
        unified(
            q=query,
            k=keys,
            v=values,
            out=out,
            cu_seqlens_q=torch.arange(0, count + 1, tokens, device="cuda", dtype=torch.int32),
            max_seqlen_q=tokens,
            seqused_k=torch.full((sequences,), context, device="cuda", dtype=torch.int32),
            max_seqlen_k=context,
            softmax_scale=HEAD**-0.5,
            causal=True,
            window_size=(-1, -1),
            block_table=table[:sequences],
            softcap=0,
            q_descale=None,
            k_descale=None,
            v_descale=None,
        )
        states = torch.randn(2, QUERY_HEADS, count, device="cuda")
        merge(torch.empty_like(out), out, states[0], query, states[1])

    def step() -> None:
        attend(PROMPTS, PROMPT, PROMPT)
        for context in range(CONTEXT - 4, CONTEXT):
            attend(DECODED, 1, context)
            query = torch.randn(DECODED, QUERY_HEADS, HEAD, **options)
            decode(
                query,
                keys.view(-1, KV_HEADS, HEAD),
                values.view(-1, KV_HEADS, HEAD),
                torch.empty_like(query),
                torch.empty(DECODED, QUERY_HEADS, device="cuda"),
                table,
                torch.full((DECODED,), context, device="cuda", dtype=torch.int32),
                workspace,
                8,
                HEAD**-0.5,
                BLOCK,
            )

    steps.run(step, arguments)


if __name__ == "__main__":
    main()
