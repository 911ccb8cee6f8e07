"""Kernels that do what their results do not need, each beside one that does not; lines to name end with ``here``."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def mean_then_variance(x, out, n, B: tl.constexpr):
    row = x + tl.program_id(0) * n
    total = tl.zeros((B,), tl.float32)
    for i in range(0, n, B):
        total += tl.load(row + i + tl.arange(0, B))
    mean = tl.sum(total) / n
    squares = tl.zeros((B,), tl.float32)
    for i in range(0, n, B):
        d = tl.load(row + i + tl.arange(0, B)) - mean  # here
        squares += d * d
    tl.store(out + tl.program_id(0), tl.sum(squares))


@triton.jit
def both_sums(x, out, n, B: tl.constexpr):
    row = x + tl.program_id(0) * n
    total, squares = tl.zeros((B,), tl.float32), tl.zeros((B,), tl.float32)
    for i in range(0, n, B):
        v = tl.load(row + i + tl.arange(0, B))
        total += v
        squares += v * v
    mean = tl.sum(total) / n
    tl.store(out + tl.program_id(0), tl.sum(squares) - n * mean * mean)


@triton.jit
def outputs_of_a_row(x, y, out, n, B: tl.constexpr):
    row, i = tl.program_id(0) * n, tl.arange(0, B)
    for k in range(4):
        total = tl.zeros((B,), tl.float32)
        for j in range(0, n, B):
            total += tl.load(x + row + j + i) * tl.load(y + k * n + j + i)  # here
        tl.store(out + tl.program_id(0) * 4 + k, tl.sum(total))


@triton.jit
def outputs_in_turn(x, y, out, n, B: tl.constexpr):
    row, i = tl.program_id(0) * n, tl.arange(0, B)
    a, b = tl.zeros((B,), tl.float32), tl.zeros((B,), tl.float32)
    for j in range(0, n, B):
        v = tl.load(x + row + j + i)
        a += v * tl.load(y + j + i)
        b += v * tl.load(y + n + j + i)
    tl.store(out + tl.program_id(0) * 2, tl.sum(a))
    tl.store(out + tl.program_id(0) * 2 + 1, tl.sum(b))


@triton.jit
def stencil(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i) + tl.load(x + i + 1) + tl.load(x + i + 2))


@triton.jit
def sum_in_memory(x, out, n, B: tl.constexpr):
    row, place = tl.program_id(0) * n, tl.program_id(0) * B + tl.arange(0, B)
    for i in range(0, n, B):
        total = tl.load(out + place)  # here
        tl.store(out + place, total + tl.load(x + row + i + tl.arange(0, B)))  # here


@triton.jit
def sum_in_registers(x, out, n, B: tl.constexpr):
    row, place = tl.program_id(0) * n, tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for i in range(0, n, B):
        total += tl.load(x + row + i + tl.arange(0, B))
    tl.store(out + place, total)


@triton.jit
def select_after_load(x, out, n, B: tl.constexpr, MASKED: tl.constexpr):
    i = tl.arange(0, B)
    place = tl.program_id(0) * B + i
    v = tl.load(x + place, mask=i < n, other=0.0) if MASKED else tl.where(i < n, tl.load(x + place), 0.0)  # here
    tl.store(out + place, v)


@triton.jit
def choice(flags, x, y, out, B: tl.constexpr, MASKED: tl.constexpr):
    place = tl.program_id(0) * B + tl.arange(0, B)
    flag = tl.load(flags + place) != 0
    if MASKED:
        v = tl.load(tl.where(flag, x + place, y + place))
    else:
        a = tl.load(x + place)  # here
        b = tl.load(y + place)  # here
        v = tl.where(flag, a, b)
    tl.store(out + place, v)


@triton.jit
def causal(q, k, v, out, n, B: tl.constexpr, D: tl.constexpr, FORM: tl.constexpr):
    block = tl.program_id(0)
    rows, d = block * B + tl.arange(0, B), tl.arange(0, D)
    a = tl.load(q + rows[:, None] * D + d[None, :])
    acc, top = tl.zeros((B, D), tl.float32), tl.full((B,), float("-inf"), tl.float32)
    end = n
    if FORM == "ends":
        end = (block + 1) * B
    for first in range(0, end, B):
        columns = first + tl.arange(0, B)
        s = tl.dot(a, tl.load(k + columns[None, :] * D + d[:, None]))
        s = tl.where(rows[:, None] >= columns[None, :], s, float("-inf"))  # here if selected
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        acc = acc * tl.exp(top - new)[:, None] + tl.dot(
            p.to(tl.float16), tl.load(v + columns[:, None] * D + d[None, :])
        )
        top = new
    tl.store(out + rows[:, None] * D + d[None, :], acc)


@triton.jit
def rows_of(x, out, n, B: tl.constexpr):
    row = tl.program_id(0) * n
    for i in range(0, n, B):
        place = i + tl.arange(0, B)
        v = tl.load(x + row + place, mask=place < n)  # here
        tl.store(out + row + place, tl.exp(v), mask=place < n)


@triton.jit
def ragged(x, out, step, n, B: tl.constexpr, ENDS: tl.constexpr):
    length = (tl.program_id(0) + 1) * step
    total = tl.zeros((B,), tl.float32)
    end = n
    if ENDS:
        end = length
    for i in range(0, end, B):
        place = i + tl.arange(0, B)
        total += tl.load(x + tl.program_id(0) * n + place, mask=place < length, other=0.0)  # here
    tl.store(out + tl.program_id(0) * B + tl.arange(0, B), total)


@triton.jit
def dot_of(x, y, out, n, B: tl.constexpr, TO: tl.constexpr):
    rows, inner = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for i in range(0, n, B):
        a = tl.load(x + rows[:, None] * n + i + inner[None, :]).to(TO)  # here if loaded
        b = tl.load(y + (i + inner)[:, None] * B + inner[None, :]).to(TO)
        acc += tl.dot(a, b)  # here if multiplied
    tl.store(out + rows[:, None] * B + inner[None, :], acc.to(out.dtype.element_ty))


@triton.jit
def positive(x, out, B: tl.constexpr):
    place = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + place, (tl.load(x + place) > 0).to(out.dtype.element_ty))  # here


@triton.jit
def convert(x, out, B: tl.constexpr):
    place = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + place, tl.load(x + place).to(out.dtype.element_ty))


@triton.jit
def sum_in(x, out, n, B: tl.constexpr, IN: tl.constexpr):
    total = tl.zeros((B,), IN)
    for i in range(0, n, B):
        total += tl.load(x + tl.program_id(0) * n + i + tl.arange(0, B)).to(IN)  # here
    tl.store(out + tl.program_id(0) * B + tl.arange(0, B), total.to(tl.float32))


@triton.jit(do_not_specialize=["stride"])
def scale_of_unknown_stride(x, out, stride, B: tl.constexpr):
    i = tl.program_id(0) * stride + tl.arange(0, B)
    tl.store(out + i, 2 * tl.load(x + i))  # here


@triton.jit
def scale(x, out, stride, B: tl.constexpr):
    i = tl.program_id(0) * stride + tl.arange(0, B)
    tl.store(out + i, 2 * tl.load(x + i))


@triton.jit
def bias_by_division(x, bias, out, height, width, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    channel = (i // width) // height  # here
    tl.store(out + i, tl.sigmoid(tl.load(x + i) + tl.load(bias + channel)))


@triton.jit
def bias_by_row(x, bias, out, height, width, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.sigmoid(tl.load(x + i) + tl.load(bias + tl.program_id(0))))


@triton.jit
def horner_of_one(x, out, n, B: tl.constexpr):
    total = 0.0
    for i in range(n):
        v = tl.load(x + tl.program_id(0) * n + i)  # here
        total = total * v + v * v + tl.exp(v)
    tl.store(out + tl.program_id(0), total)


@triton.jit
def horner(x, out, n, B: tl.constexpr):
    row = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for i in range(n):
        v = tl.load(x + i * B + row)
        total = total * v + v * v + tl.exp(v)
    tl.store(out + row, total)


@triton.jit
def rotate(x, table, out, n, B: tl.constexpr, LOADED: tl.constexpr):
    token, head = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, B)
    if LOADED:
        c, s = tl.load(table + token * 2 * B + i), tl.load(table + (token * 2 + 1) * B + i)
    else:
        angle = token * (i * 0.3)
        c, s = tl.cos(angle), tl.sin(angle)  # here
    place = (token * n + head) * B + i
    tl.store(out + place, tl.load(x + place) * c + s)


@triton.jit
def scaled_matmul(x, y, out, factor, n, B: tl.constexpr, AFTER: tl.constexpr):
    rows, inner = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for i in range(0, n, B):
        a = tl.load(x + rows[:, None] * n + i + inner[None, :])
        b = tl.load(y + (i + inner)[:, None] * B + inner[None, :])
        if not AFTER:
            b = (b * factor).to(tl.float16)  # here
        acc += tl.dot(a, b)
    if AFTER:
        acc *= factor
    tl.store(out + rows[:, None] * B + inner[None, :], acc)


@triton.jit
def power(x, out, B: tl.constexpr, LIBRARY: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i)
    tl.store(out + i, libdevice.pow(a, 1.5) if LIBRARY else a * tl.sqrt(a))  # here


@triton.jit
def normalise(x, y, out, B: tl.constexpr, ROUNDED: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, tl.math.div_rn(a, tl.math.sqrt_rn(b)) if ROUNDED else a * tl.rsqrt(b))  # here


@triton.jit
def drop(x, out, seed, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    keep = tl.rand(seed, i) > 0.5  # here
    tl.store(out + i, tl.where(keep, 2 * tl.load(x + i), 0.0))


@triton.jit
def product_of_vectors(x, y, out, n, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    columns = tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(n):
        acc += tl.load(x + k * B + rows)[:, None] * tl.load(y + k * B + columns)[None, :]  # here
    tl.store(out + rows[:, None] * B + columns[None, :], acc)


@triton.jit
def product_by_broadcast(x, y, out, n, B: tl.constexpr):
    rows, columns, inner = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, B), tl.arange(0, 16)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, n, 16):
        a = tl.load(x + rows[:, None] * n + k + inner[None, :])
        b = tl.load(y + columns[:, None] * n + k + inner[None, :])
        acc += tl.sum(a[:, None, :] * b[None, :, :], 2)  # here
    tl.store(out + rows[:, None] * B + columns[None, :], acc)


@triton.jit
def product_by_dots(x, y, out, n, B: tl.constexpr):
    rows, columns, inner = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, B), tl.arange(0, 16)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, n, 16):
        a = tl.load(x + rows[:, None] * n + k + inner[None, :])
        acc += tl.dot(a, tl.load(y + columns[None, :] * n + k + inner[:, None]))
    tl.store(out + rows[:, None] * B + columns[None, :], acc)


@triton.jit
def product_of_itself(x, out, n, B: tl.constexpr, TURNED: tl.constexpr):
    rows, columns = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, n, B):
        inner = k + tl.arange(0, B)
        a = tl.load(x + rows[:, None] * n + inner[None, :])
        if TURNED:
            b = tl.load(x + columns[None, :] * n + inner[:, None])
        else:
            b = tl.load(x + inner[:, None] * n + columns[None, :])
        acc += tl.dot(a, b)  # here
    tl.store(out + rows[:, None] * n + columns[None, :], acc)


@triton.jit
def forces(x, mass, out, n, B: tl.constexpr):
    own = tl.load(x + tl.program_id(0) * B + tl.arange(0, B))
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, n, B):
        d = tl.load(x + k + tl.arange(0, B))[None, :] - own[:, None]
        r = tl.rsqrt(d * d + 1e-3)
        acc += tl.load(mass + k + tl.arange(0, B))[None, :] * r * r * r * d
    tl.store(out + tl.program_id(0) * B + tl.arange(0, B), tl.sum(acc, 1))


@triton.jit
def escape_time(out, n, B: tl.constexpr, ENDS: tl.constexpr):
    c = (tl.program_id(0) * B + tl.arange(0, B)) * 1e-4
    z, count = tl.zeros((B,), tl.float32), tl.zeros((B,), tl.float32)
    if ENDS:
        step = 0
        while (step < n) & (tl.max(tl.where(z < 2, 1, 0)) > 0):
            for _ in range(16):
                z = tl.where(z < 2, z * z + c, z)
                count += tl.where(z < 2, 1.0, 0.0)
            step += 16
    else:
        for _ in range(n):
            z = tl.where(z < 2, z * z + c, z)  # here
            count += tl.where(z < 2, 1.0, 0.0)
    tl.store(out + tl.program_id(0) * B + tl.arange(0, B), count)


@triton.jit
def grouped_matmul(x, y, out, n, B: tl.constexpr, MASKED: tl.constexpr):
    """Multiply by a matrix with blocks of n on its diagonal: a CTA needs the rows of its own block."""
    i, column = tl.arange(0, B), tl.program_id(0) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    start = 0 if MASKED else tl.program_id(0) * B // n * n
    end = tl.num_programs(0) * B if MASKED else start + n
    for k in range(start, end, B):
        a = tl.load(x + i[:, None] * 4096 + k + i[None, :])
        if MASKED:
            own = ((k + i) // n)[:, None] == (column // n)[None, :]
            b = tl.load(y + (k + i)[:, None] * 4096 + column[None, :], mask=own, other=0.0)
        else:
            b = tl.load(y + (k + i)[:, None] * 4096 + column[None, :])
        acc = tl.dot(a, b, acc)  # here
    tl.store(out + i[:, None] * 4096 + column[None, :], acc)


@triton.jit
def sum_of_length(x, y, out, n, B: tl.constexpr, MASKED: tl.constexpr):
    i, length = tl.arange(0, B), tl.load(y + tl.program_id(0))
    acc = tl.zeros((B,), tl.float32)
    for k in range(0, n, B):
        place = x + tl.program_id(0) * n + k + i
        if MASKED:
            acc += tl.load(place, mask=k + i < length, other=0.0)
        else:
            v = tl.load(place)  # here
            acc += tl.where(k + i < length, v, 0.0)
    tl.store(out + tl.program_id(0), tl.sum(acc))


@triton.jit
def filter_of_three(x, out, n, B: tl.constexpr, MODIFIER: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i + 128, cache_modifier=MODIFIER)
    b = tl.load(x + i + 256, cache_modifier=MODIFIER)  # here
    tl.store(out + i, a + b + tl.load(x + i, cache_modifier=MODIFIER))


@triton.jit
def running_mean(x, weights, out, n, B: tl.constexpr, AFTER: tl.constexpr):
    rows, columns = tl.arange(0, 16), tl.arange(0, B)
    acc, total = tl.zeros((16, B), tl.float32), tl.zeros((16,), tl.float32)
    for k in range(n):
        w = tl.load(weights + k * 16 + rows)
        v = tl.load(x + ((tl.program_id(0) * n + k) * 16 + rows)[:, None] * B + columns[None, :])
        if AFTER:
            acc += v * w[:, None]
        else:
            acc = (acc * total[:, None] + v * w[:, None]) / (total + w)[:, None]  # here
        total += w
    if AFTER:
        acc = acc / total[:, None]
    tl.store(out + rows[:, None] * B + columns[None, :], acc)


@triton.jit
def largest_two(x, out, B: tl.constexpr, SORTED: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * B + i)
    if SORTED:
        v = tl.sort(v, descending=True)  # here
        both = tl.sum(tl.where(i < 2, v, 0.0))
    else:
        most = tl.max(v)
        both = most + tl.max(tl.where(v < most, v, float("-inf")))
    tl.store(out + tl.program_id(0), both)


@triton.jit
def exponentials(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i)
    for _ in range(n):
        v = tl.exp2(v)  # here
    tl.store(out + i, v)


@triton.jit
def columns_of(x, out, width, B: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i % width))  # here


@triton.jit
def column_sums(x, out, n, TALL: tl.constexpr, WIDE: tl.constexpr):
    rows = tl.program_id(1) * TALL + tl.arange(0, TALL)
    columns = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    acc = tl.zeros((TALL, WIDE), tl.float32)
    for k in tl.static_range(8):
        acc += tl.load(x + (rows + k)[:, None] * n + columns[None, :])  # here
    tl.store(out + rows[:, None] * n + columns[None, :], acc)


@triton.jit
def decode(x, y, out, B: tl.constexpr, MODIFIER: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + tl.load(y + i), cache_modifier=MODIFIER))  # here


@triton.jit
def place_of_sum(x, y, out, n, B: tl.constexpr, ENDS: tl.constexpr):
    row, i, limit = x + tl.program_id(0) * n, tl.arange(0, B), tl.load(y + tl.program_id(0))
    before, count = 0.0, tl.zeros((B,), tl.int32)
    if ENDS:
        k = 0
        while (k < n) & (before < limit):
            v = tl.load(row + k + i)
            count += (before + tl.cumsum(v) < limit).to(tl.int32)
            before += tl.sum(v)
            k += B
    else:
        for k in range(0, n, B):
            v = tl.load(row + k + i)
            count += (before + tl.cumsum(v) < limit).to(tl.int32)  # here
            before += tl.sum(v)
    tl.store(out + tl.program_id(0), tl.sum(count))


@triton.jit
def packed(x, y, out, B: tl.constexpr, ALIGNED: tl.constexpr):
    start = tl.load(y + tl.program_id(0))
    if ALIGNED:
        start = tl.multiple_of(start, 16)
    v = tl.load(x + start + tl.arange(0, B))  # here
    tl.store(out + tl.program_id(0) * B + tl.arange(0, B), v)


@triton.jit
def three_weights(x, y, out, n, B: tl.constexpr, JOINED: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a, b, acc = tl.load(x + i), tl.load(y + i), tl.zeros((B,), tl.float32)
    for k in range(n):
        if JOINED:
            acc += 0.5 * tl.exp(-a * k - b * k)
        else:
            acc += 0.5 * tl.exp(-a * k) * tl.exp(-b * k)  # here
    tl.store(out + i, acc)


@triton.jit
def order_of(x, out, B: tl.constexpr, WIDE: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * B + i).to(tl.int32)
    key = tl.sort((v.to(tl.int64) << 32 if WIDE else v << 16) | i)  # here
    tl.store(out + tl.program_id(0) * B + i, (key & 0xFFFF).to(tl.int32))


@triton.jit
def dot_of_bytes(x, y, out, n, B: tl.constexpr, PRODUCTS: tl.constexpr):
    i, j = tl.arange(0, B), tl.arange(0, 128)
    rows = tl.program_id(0) * B + i
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, n, 128):
        a = tl.load(x + rows[:, None] * n + k + j[None, :])
        b = tl.load(y + i[None, :] * n + k + j[:, None])
        acc = tl.dot(a, b, acc, max_num_imprecise_acc=PRODUCTS)  # here
    tl.store(out + rows[:, None] * B + i[None, :], acc)


@triton.jit
def scan_of_tiles(x, state, out, B: tl.constexpr, EARLY: tl.constexpr):
    tile, i = tl.program_id(0), tl.arange(0, B)
    if EARLY:
        v = tl.load(x + tile * B + i)
    carry = tl.load(state + tile, volatile=True)
    while carry == 0:
        carry = tl.load(state + tile, volatile=True)
    if not EARLY:
        v = tl.load(x + tile * B + i)  # here
    tl.store(out + tile * B + i, v + carry)
    tl.atomic_xchg(state + tile + 1, carry + 1)


@triton.jit
def dequantized_matmul(x, y, scales, out, n, B: tl.constexpr):
    rows, inner = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for i in range(0, n, B):
        a = tl.load(x + rows[:, None] * n + i + inner[None, :])
        b = tl.load(y + (i + inner)[:, None] * B + inner[None, :])
        scale = tl.load(scales + (i + inner)[:, None] * B + inner[None, :])
        acc += tl.dot(a, b.to(tl.float16) * scale)
    tl.store(out + rows[:, None] * B + inner[None, :], acc)
