"""Draws what advice promised at most against what the edits won, from the results of ``judge.py``.

    python benchmarks/advice/plot.py RESULTS.json [-o predictions.svg]

Points below the diagonal kept their promise; those between the lines won at least half of it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SIZE, MARGIN, LEGEND = 420, 48, 170
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2")
SHAPES = ("circle", "square")


def main() -> None:
    """Write the picture of the results that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("predictions.svg"))
    options = parser.parse_args()
    judged = [one for one in json.loads(options.results.read_text()).values() if promise_of(one) is not None]
    options.output.write_text("\n".join(picture(judged)) + "\n")


def promise_of(one: dict[str, Any]) -> float | None:
    """Return the upper bound of the gain by the first advice; None without one."""
    advice = one["opinion"]["advice"] if one["opinion"] and one["gain"] else []
    return advice[0]["share"] if advice else None


def picture(judged: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of an SVG file."""
    flaws = list(dict.fromkeys(one["flaw"] for one in judged))
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
    for one in judged:
        place = flaws.index(one["flaw"])
        yield mark(x_of(promise_of(one) or 0.0), y_of(max(one["gain"]["won"], 0.0)), place, one["case"])
    for place, flaw in enumerate(flaws):
        y = MARGIN + 10 + 20 * place
        yield mark(SIZE + MARGIN + 22, y, place, flaw)
        yield text(SIZE + MARGIN + 34, y + 4, flaw, "start")
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
