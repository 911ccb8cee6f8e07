"""Assembly strings with braces, quotes, backslashes, newlines and comments in them."""

import triton
import triton.language as tl


@triton.jit
def unpack_int4_kernel(packed_ptr, scale_ptr, out_ptr, n_words, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """Eight 4-bit integers in each 32-bit word become floats; GROUP words share a scale."""
    words = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = words < n_words
    packed = tl.load(packed_ptr + words, mask=mask, other=0)
    scale = tl.load(scale_ptr + words // GROUP, mask=mask, other=1.0)
    for nibble in tl.static_range(8):
        shifted = packed >> (4 * nibble)
        value = tl.inline_asm_elementwise(
            asm="""
            {   // the low nibble, "signed": { -8 ... 7 }
                .reg .b32 bits;
                and.b32     bits, $1, 0xf;      /* loc("not a location") */
                xor.b32     bits, bits, 0x8;\t// -> %bits
                sub.s32     $0, bits, 0x8;
            }
            """,
            constraints="=r,r",
            args=[shifted],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
        tl.store(out_ptr + words * 8 + nibble, value.to(tl.float32) * scale, mask=mask)
    tl.inline_asm_elementwise('// a \\ backslash, a "quote" and a {brace\n', "=r,r", [packed], tl.int32, False, 1)
