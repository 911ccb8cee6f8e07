"""Training steps of a Llama of Hugging Face's transformers with the kernels of Liger; it needs both packages."""

from __future__ import annotations

import steps
import torch
from liger_kernel.transformers import apply_liger_kernel_to_llama
from transformers import LlamaConfig, LlamaForCausalLM

BATCH, LENGTH = 4, 2048


def main() -> None:
    arguments = steps.parser(__doc__).parse_args()
    torch.manual_seed(0)
    apply_liger_kernel_to_llama()
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=2,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=LENGTH,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config).to("cuda", torch.bfloat16).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(config.vocab_size, (BATCH, LENGTH), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()

    steps.run(step, arguments)


if __name__ == "__main__":
    main()
