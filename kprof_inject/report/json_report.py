"""A report as JSON: everything of the launches shown, or what matters most of one launch within a number of tokens."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kprof_inject.analysis.advice import advice_on
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program_overview import KernelOverview, overview
from kprof_inject.capture.encoding import json_text, json_values
from kprof_inject.errors import KprofError, printable

_CHARACTERS_IN_TOKEN = 4
_SIGNIFICANT_DIGITS = 4
_MAX_TEXT = 400
# What no budget leaves out.
_ALWAYS: Mapping[str, tuple[str, ...]] = {
    "kernel": (),
    "launch": (),
    "grid": (),
    "duration_ns": (),
    "program": ("share", "launches", "launches_captured", "to_win_ns", "to_win_by"),
    "limit": ("name", "units", "text", "is_known", "evidence"),
    "trust": ("level", "text", "overhead_percent", "overhead_error_percent"),
}
# What is added as long as it fits, most important first; of records, these fields alone.
_IF_IT_FITS: Mapping[str, tuple[str, ...]] = {
    "advice": (),
    "records_lost": (),
    "findings": ("rule", "scope", "share", "text", "advice", "figures"),
    "edits": (),
    "units": (),
    "scopes": ("index", "distinct_name", "source", "share", "self_ns", "p50_ns", "count"),
    "stalls": ("reasons", "scopes"),
    "doubts": (),
    "causal": (),
    "in_flight": (),
    "memory_waits": (),
}


def launch_values(report: LaunchAnalysis, kernel: KernelOverview) -> dict[str, Any]:
    """Return everything of a launch as JSON values; ``program`` has the overview of its kernel."""
    advice = [json_values(one) for one in advice_on(report)]
    return {**report.to_json(), "advice": advice, "program": kernel.to_json()}


def whole_text(reports: Sequence[LaunchAnalysis], shown: Sequence[LaunchAnalysis] = ()) -> Iterator[str]:
    """Yield a list with everything of the launches that are ``shown``, in parts.

    By default, the median launch of each variant and process is shown, and its ``other_launches`` has a row for each
    other launch of the same. The list also ends if a launch that is damaged raises ``KprofError``.
    """
    kernels = {kernel.name: kernel for kernel in overview(reports)}
    shown_ids = {id(report) for report in shown or [one for kernel in kernels.values() for one in kernel.middles]}
    others: defaultdict[Path, list[dict[str, Any]]] = defaultdict(list)
    for report in reports:
        if id(report) not in shown_ids:
            others[report.launch.kernel.folder].append(_row(report))
    separator = "["
    try:
        for report in (report for report in reports if id(report) in shown_ids):
            kernel = report.launch.kernel
            values = launch_values(report, kernels[kernel.name])
            text = json_text({**values, "other_launches": others[kernel.folder]})
            yield separator + f"\n{text}".replace("\n", "\n ")
            separator = ","
    finally:
        if separator == ",":
            yield "\n]\n"


def _row(report: LaunchAnalysis) -> dict[str, Any]:
    """Return the values of a launch that need no decoding."""
    launch = report.launch
    return {
        "variant": launch.kernel.variant,
        "launch": launch.index,
        "graph": launch.graph,
        "place": json_values(launch.place),
        "grid": launch.grid,
        "host_ns": launch.host_ns,
        **json_values(report.headers),
    }


def brief_text(reports: Sequence[LaunchAnalysis], budget: int) -> str:
    """Return a line of at most ``budget`` tokens on the launch for which ``report`` gives its answer.

    A token has four characters. Keys and values are those of ``launch_values``; figures have four digits, long texts
    are cut. ``left_out`` says how many items of which keys did not fit. Raises ``KprofError`` if the parts that are
    always there do not fit.
    """
    kernel = overview(reports)[0]
    values = launch_values(kernel.middle, kernel)
    values["scopes"] = sorted(values["scopes"], key=lambda scope: -(scope["self_ns"] or 0))
    optional = {key: _brief(values[key], fields) for key, fields in _IF_IT_FITS.items() if values[key]}
    kept = {key: _brief(values[key], fields) for key, fields in _ALWAYS.items()}
    left_out = {key: len(value) if isinstance(value, list) else 1 for key, value in optional.items()}
    least = math.ceil(len(_encoded(kept, left_out)) / _CHARACTERS_IN_TOKEN)
    if least > budget:
        raise KprofError(f"a budget of {budget} is too small", hint=f"use --budget {least} or more", exit_code=2)
    for key, value in optional.items():
        for count in range(left_out[key], 0, -1):
            more = {**kept, key: value[:count] if isinstance(value, list) else value}
            rest = {**left_out, key: left_out[key] - count}
            if len(_encoded(more, rest)) <= _CHARACTERS_IN_TOKEN * budget:
                kept, left_out = more, rest
                break
    return _encoded(kept, left_out)


def _encoded(kept: Mapping[str, Any], left_out: Mapping[str, int]) -> str:
    missing = {key: count for key, count in left_out.items() if count}
    return msgspec.json.encode({**kept, "left_out": missing}).decode()


def _brief(value: Any, fields: Sequence[str] = ()) -> Any:
    match value:
        case float():
            return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
        case str():
            shown = printable(value)
            return shown if len(shown) <= _MAX_TEXT else f"{shown[: _MAX_TEXT - 1]}…"
        case list() | tuple():
            return [_brief(one, fields) for one in value]
        case dict():
            return {name: _brief(one) for name, one in value.items() if not fields or name in fields}
    return value
