"""Draws what was promised at most against what edits won, and prints how many promises hold and are within two.

    python benchmarks/advice/plot.py RESULTS.json... [-o predictions.svg]

RESULTS.json are those of ``judge.py``, whose promises are the first advice, and of ``exhaustive.py``, whose promises
are those of each finding for the edits that do what it advises; the best of these counts. Points below the diagonal
kept their promise; those between the lines won at least half of it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

SIZE, MARGIN, LEGEND = 420, 48, 190
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2")
SHAPES = ("circle", "square")


class Point(Struct, frozen=True):
    """A promise, and what was won: parts of the time, with the ends of its interval."""

    kind: str
    name: str
    promised: float
    won: float
    low: float
    high: float

    @property
    def is_inside(self) -> bool:
        """True if at least half of the promise was won, and no more than it."""
        return self.promised >= self.low and self.high >= self.promised / 2


def main() -> None:
    """Write the picture of the results that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, default=Path("predictions.svg"))
    options = parser.parse_args()
    points = [point for path in options.results for point in points_in(json.loads(path.read_text()))]
    inside = sum(point.is_inside for point in points)
    print(
        f"{inside} of {len(points)} promises ({inside / max(len(points), 1):.0%}) hold, and are within two of the gain"
    )
    options.output.write_text("\n".join(picture(points)) + "\n")


def points_in(results: dict[str, Any]) -> Iterator[Point]:
    """Yield the promises of a file."""
    if "tried" in results:
        for kernel in results["tried"]:
            yield from _promises_of_findings(kernel)
        return
    for one in results.values():
        advice = one["opinion"]["advice"] if one["opinion"] and one["gain"] else []
        if advice and advice[0]["share"] is not None:
            gain = one["gain"]
            yield Point(one["flaw"], one["case"], advice[0]["share"], gain["won"], gain["low"], gain["high"])


def _promises_of_findings(kernel: dict[str, Any]) -> Iterator[Point]:
    """Yield the promise of each finding on a kernel with the best of the edits that do what it advises."""
    best: dict[str, tuple[float, dict[str, Any]]] = {}
    for tried in kernel["tried"]:
        gain, promised = tried["confirmed"] or tried["gain"], tried["predicted"]
        if gain and promised is not None and gain["won"] > best.get(tried["reason"], (0, {"won": -9}))[1]["won"]:
            best[tried["reason"]] = promised, gain
    for rule, (promised, gain) in best.items():
        yield Point("tried", f"{kernel['name']}: {rule}", promised, gain["won"], gain["low"], gain["high"])


def picture(points: Sequence[Point]) -> Iterator[str]:
    """Yield the lines of an SVG file."""
    kinds = list(dict.fromkeys(point.kind for point in points))
    size = f'width="{SIZE + 2 * MARGIN + LEGEND}" height="{SIZE + 2 * MARGIN}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    yield f'<rect {size} fill="white"/>'
    for number in range(0, 101, 20):
        part = number / 100
        yield line(part, 0, part, 1, "#dddddd")
        yield line(0, part, 1, part, "#dddddd")
        yield text(x_of(part), MARGIN + SIZE + 16, f"{number} %", "middle")
        yield text(MARGIN - 6, y_of(part) + 4, f"{number} %", "end")
    yield line(0, 0, 1, 1, "#444444")
    yield line(0, 0, 1, 0.5, "#999999")
    yield text(x_of(0.5), MARGIN + SIZE + 34, "promised at most", "middle")
    yield text(MARGIN, MARGIN - 14, "won by the edit", "start")
    for point in points:
        yield mark(x_of(point.promised), y_of(max(point.won, 0.0)), kinds.index(point.kind), point.name)
    for place, kind in enumerate(kinds):
        y = MARGIN + 10 + 20 * place
        yield mark(SIZE + MARGIN + 22, y, place, kind)
        yield text(SIZE + MARGIN + 34, y + 4, kind, "start")
    yield "</svg>"


def x_of(part: float) -> float:
    """Return the place of a promise."""
    return MARGIN + SIZE * part


def y_of(part: float) -> float:
    """Return the place of a gain."""
    return MARGIN + SIZE * (1 - part)


def line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    """Return a line between two points of the diagram."""
    ends = f'x1="{x_of(x1):.1f}" y1="{y_of(y1):.1f}" x2="{x_of(x2):.1f}" y2="{y_of(y2):.1f}"'
    return f'<line {ends} stroke="{colour}"/>'


def text(x: float, y: float, words: str, anchor: str) -> str:
    """Return words at a place of the picture."""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" text-anchor="{anchor}">{words}</text>'


def mark(x: float, y: float, place: int, title: str) -> str:
    """Return the mark of a flaw, by its place in the legend."""
    colour, shape = COLOURS[place % len(COLOURS)], SHAPES[place // len(COLOURS) % len(SHAPES)]
    form = (
        f'cx="{x:.1f}" cy="{y:.1f}" r="4.5"'
        if shape == "circle"
        else f'x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"'
    )
    tag = "circle" if shape == "circle" else "rect"
    return f'<{tag} {form} fill="{colour}" fill-opacity="0.8"><title>{title}</title></{tag}>'


if __name__ == "__main__":
    main()
