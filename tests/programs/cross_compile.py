"""Compiles three variants of two kernels, and prints what came out: one line of JSON for each."""

import json

from kernels import accumulate, compile_for_h200, describe, scale, with_records

for kernel, num_warps in [(accumulate, 4), (accumulate, 8), (scale, 4)]:
    print(json.dumps(describe(with_records(compile_for_h200(kernel, num_warps)))))
