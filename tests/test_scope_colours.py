"""The colours of scopes: legible, distinct, and the same on the page, in a terminal and in a Chrome trace."""

from __future__ import annotations

import html
import json

import pytest
from altered import answer_of
from programs.child import REPO
from traces import chrome_trace

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.reader import read_capture
from kprof_inject.report.html.columns import shown_of
from kprof_inject.report.html.data import launch_facts
from kprof_inject.report.terminal.first_screen import print_first_screen
from kprof_inject.report.terminal.screens import html_of
from kprof_inject.scope_colours import scope_colours
from kprof_inject.timeline.timeline import decode_launch

LEGIBLE = 4.5
"""Minimum contrast of text by WCAG 2.2."""
INKS = ("#11151c", "#ffffff")
"""``assets/theme.js`` writes on a scope in one of them."""
EVERY_KIND = scope_colours([*["func"] * 9, *["marker"] * 40])


@pytest.fixture(scope="module")
def report() -> LaunchAnalysis:
    return LaunchAnalysis.of(decode_launch(read_capture(REPO / "tests/captures/matmul").launches[0]))


def luminance(rgb: str) -> float:
    parts = [channel / 255 for channel in bytes.fromhex(rgb[1:])]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_a_label_is_legible_on_each_colour() -> None:
    for colour in EVERY_KIND:
        assert max(contrast(colour.rgb, ink) for ink in INKS) >= LEGIBLE, colour


def test_the_first_colours_are_distinct_and_so_are_the_inner_names_of_chrome() -> None:
    colours = scope_colours([*["loop"] * 4, *["op"] * 10])
    assert len({colour.rgb for colour in colours}) == 14
    assert len({colour.cname for colour in colours[4:]}) == 10
    assert scope_colours(["op"] * 256)[-1].rgb != colours[4].rgb


def test_page_terminal_and_trace_have_the_same_colours(report: LaunchAnalysis) -> None:
    timeline = report.timeline
    colours = scope_colours(scope.kind for scope in timeline.table.scopes)
    facts = launch_facts(report, answer_of(report), shown_of(timeline, (), timeline.scope_count), [], None)
    assert facts["colours"] == [colour.rgb for colour in colours]

    trace = json.loads(b"".join(chrome_trace([timeline])))
    cnames = {event["name"]: event["cname"] for event in trace["traceEvents"] if "cname" in event}
    assert cnames == {scope.name: colour.cname for scope, colour in zip(timeline.table.scopes, colours, strict=True)}

    lines = html.unescape(html_of(lambda console: print_first_screen(answer_of(report), console))).splitlines()
    for summary, colour in zip(report.summary.scopes, colours, strict=True):
        (line,) = [line for line in lines if line.lstrip().startswith(f"{summary.title} ")]
        assert f"color: {colour.rgb}" in line
