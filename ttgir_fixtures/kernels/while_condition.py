"""An `scf.while` whose condition is work: loads, a reduction and two comparisons stand in its first region."""

import triton
import triton.language as tl


@triton.jit
def _residual(x, target):
    """How far x is from being the cube root of target, at worst."""
    return tl.max(tl.abs(x * x * x - target), axis=0)


@triton.jit
def cube_root_kernel(x_ptr, out_ptr, tolerance_ptr, steps_ptr, n_elements, max_steps, BLOCK: tl.constexpr):
    """Cube roots by Newton's method, until all of a block are within the tolerance or max_steps are done.

    The host may loosen the tolerance while the kernel runs, so it is read again before every step.
    """
    block = tl.program_id(0)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    target = tl.load(x_ptr + offsets, mask=mask, other=1.0)
    guess = target / 3 + 2.0 / 3
    steps = 0
    while (_residual(guess, target) > tl.load(tolerance_ptr, volatile=True)) & (steps < max_steps):
        guess = (2 * guess + target / (guess * guess)) / 3
        steps += 1
    tl.store(out_ptr + offsets, guess, mask=mask)
    tl.store(steps_ptr + block, steps)
