"""An atomic for each element, on few addresses. The edit reduces within a CTA first."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from case import INT, Case, Pair, Result, by_name, normal

FLAW = "atomics"
KEYWORDS = ("atomic",)


@triton.jit
def luminance(rgb_ptr, places, PIXELS):
    red, green = tl.load(rgb_ptr + places).to(tl.int32), tl.load(rgb_ptr + PIXELS + places).to(tl.int32)
    blue = tl.load(rgb_ptr + 2 * PIXELS + places).to(tl.int32)
    return (77 * red + 150 * green + 29 * blue) >> 8


@triton.jit
def histogram_flawed(rgb_ptr, counts_ptr, PIXELS, BLOCK: tl.constexpr):
    """Count how often each luminance occurs in an image."""
    bins = luminance(rgb_ptr, tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), PIXELS)
    tl.atomic_add(counts_ptr + bins, 1, sem="relaxed")


@triton.jit
def histogram_edited(rgb_ptr, counts_ptr, PIXELS, BLOCK: tl.constexpr):
    """Add the counts of a CTA."""
    bins = luminance(rgb_ptr, tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), PIXELS)
    tl.atomic_add(counts_ptr + tl.arange(0, 256), tl.histogram(bins, 256), sem="relaxed")


@triton.jit
def segment_peak_flawed(x_ptr, segments_ptr, out_ptr, BLOCK: tl.constexpr):
    """Compute the maximum of each segment; a CTA's elements are all of one segment."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(out_ptr + tl.load(segments_ptr + places), tl.load(x_ptr + places), sem="relaxed")


@triton.jit
def segment_peak_edited(x_ptr, segments_ptr, out_ptr, BLOCK: tl.constexpr):
    """Compute the maximum of the CTA's elements first."""
    first = tl.program_id(0) * BLOCK
    peak = tl.max(tl.load(x_ptr + first + tl.arange(0, BLOCK)), 0)
    tl.atomic_max(out_ptr + tl.load(segments_ptr + first), peak, sem="relaxed")


@triton.jit
def huber_loss(prediction_ptr, target_ptr, places):
    error = tl.abs(tl.load(prediction_ptr + places) - tl.load(target_ptr + places))
    return tl.where(error < 1, 0.5 * error * error, error - 0.5)


@triton.jit
def class_loss_flawed(prediction_ptr, target_ptr, labels_ptr, sums_ptr, CLASSES: tl.constexpr, BLOCK: tl.constexpr):
    """Sum the Huber loss of each class."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    loss = huber_loss(prediction_ptr, target_ptr, places)
    tl.atomic_add(sums_ptr + tl.load(labels_ptr + places), loss, sem="relaxed")


@triton.jit
def class_loss_edited(prediction_ptr, target_ptr, labels_ptr, sums_ptr, CLASSES: tl.constexpr, BLOCK: tl.constexpr):
    """Add the sums of a CTA."""
    places, classes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, CLASSES)
    loss = huber_loss(prediction_ptr, target_ptr, places)
    is_of_class = tl.load(labels_ptr + places)[:, None] == classes[None, :]
    tl.atomic_add(sums_ptr + classes, tl.sum(tl.where(is_of_class, loss[:, None], 0.0), 0), sem="relaxed")


def histogram(device: str, small: bool) -> Pair:
    pixels, block = 4096 if small else 1 << 21, 2048
    rgb = torch.randint(0, 256, (3, pixels), device=device, dtype=torch.uint8)
    flawed_counts, edited_counts = (torch.zeros(256, device=device, dtype=INT) for _ in range(2))

    def flawed() -> Result:
        histogram_flawed[(pixels // block,)](rgb, flawed_counts, pixels, block)
        return flawed_counts

    def edited() -> Result:
        histogram_edited[(pixels // block,)](rgb, edited_counts, pixels, block)
        return edited_counts

    return flawed, edited


def segment_peak(device: str, small: bool) -> Pair:
    count, segment_count, block = (4096, 2, 1024) if small else (1 << 21, 256, 1024)
    x = normal(device, count)
    segments = torch.arange(segment_count, device=device, dtype=INT).repeat_interleave(count // segment_count)
    flawed_out, edited_out = (torch.full((segment_count,), -torch.inf, device=device) for _ in range(2))

    def flawed() -> Result:
        segment_peak_flawed[(count // block,)](x, segments, flawed_out, block)
        return flawed_out

    def edited() -> Result:
        segment_peak_edited[(count // block,)](x, segments, edited_out, block)
        return edited_out

    return flawed, edited


def class_loss(device: str, small: bool) -> Pair:
    count, classes, block = 2048 if small else 1 << 20, 16, 1024
    prediction, target = normal(device, count), normal(device, count)
    labels = torch.randint(0, classes, (count,), device=device, dtype=INT)
    flawed_sums, edited_sums = (torch.zeros(classes, device=device) for _ in range(2))

    def flawed() -> Result:
        class_loss_flawed[(count // block,)](prediction, target, labels, flawed_sums, classes, block)
        return flawed_sums

    def edited() -> Result:
        class_loss_edited[(count // block,)](prediction, target, labels, edited_sums, classes, block)
        return edited_sums

    return flawed, edited


CASES = by_name(
    Case("histogram", FLAW, histogram, KEYWORDS),
    Case("segment-peak", FLAW, segment_peak, KEYWORDS),
    Case("class-loss", FLAW, class_loss, KEYWORDS),
)
