"""Control flow that data decides: `scf.while` with an `scf.if` inside, and an `scf.if` with an `else`."""

import triton
import triton.language as tl


@triton.jit
def hash_lookup_kernel(
    query_ptr,
    keys_ptr,
    values_ptr,
    out_ptr,
    miss_count_ptr,
    n_queries,
    slot_mask,
    default,
    EMPTY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Look BLOCK queries up in an open-addressed hash table.

    The table has slot_mask + 1 slots, a power of two, some of them EMPTY. A query that is not in the table
    gives default and is counted in miss_count.
    """
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = offsets < n_queries
    query = tl.load(query_ptr + offsets, mask=valid, other=EMPTY)
    slot = (query.to(tl.uint32) * 0x9E3779B1).to(tl.int32) & slot_mask
    value = tl.zeros((BLOCK,), dtype=tl.float32)
    found = tl.zeros((BLOCK,), dtype=tl.int32)
    pending = valid.to(tl.int32)

    while tl.sum(pending, axis=0) > 0:
        key = tl.load(keys_ptr + slot, mask=pending != 0, other=EMPTY)
        hit = (pending != 0) & (key == query)
        # Most rounds of a long probe hit nothing: do not touch the values then.
        if tl.sum(hit.to(tl.int32), axis=0) > 0:
            value = tl.where(hit, tl.load(values_ptr + slot, mask=hit, other=0.0), value)
            found = tl.where(hit, 1, found)
        pending = tl.where(hit | (key == EMPTY), 0, pending)
        slot = (slot + 1) & slot_mask

    misses = tl.sum(valid.to(tl.int32) - found, axis=0)
    if misses == 0:
        tl.store(out_ptr + offsets, value, mask=valid)
    else:
        tl.store(out_ptr + offsets, tl.where(found != 0, value, default), mask=valid)
        tl.atomic_add(miss_count_ptr, misses)
