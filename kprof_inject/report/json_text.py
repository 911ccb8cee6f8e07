"""The answers as JSON: whole, with its schema, or what matters most within a number of tokens."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kprof_inject.analysis.launch import ReportLaunch
from kprof_inject.analysis.program import Report
from kprof_inject.capture.encoding import json_text, json_values, schema_of
from kprof_inject.errors import KprofError, printable
from kprof_inject.report.facts import Answer, Answers, LaunchRow, launch_row

_CHARACTERS_IN_TOKEN = 4
_SIGNIFICANT_DIGITS = 4
_MAX_TEXT = 400
_MAX_KEPT = 100  # analyses that are kept while they are printed: of more, each is freed after its answer
# Keys that every budget includes.
_ALWAYS: Mapping[str, tuple[str, ...]] = {
    "kernel": (),
    "launch": (),
    "grid": (),
    "duration_ns": (),
    "run_times": (),
    "program": ("share", "launches", "launches_captured", "to_win_ns", "to_win_by"),
    "limit": ("name", "units", "text", "is_known", "evidence"),
    "trust": ("level", "text", "figure"),
}
# Keys that are added while they fit, the most important first; records keep only these fields.
_IF_IT_FITS: Mapping[str, tuple[str, ...]] = {
    "advice": (),
    "records_lost": (),
    "findings": ("rule", "scope", "share", "text", "advice", "launches", "judged", "figures"),
    "edits": (),
    "units": (),
    "scopes": ("index", "distinct_name", "source", "share", "self_ns", "p50_ns", "count"),
    "stalls": ("reasons", "scopes"),
    "doubts": (),
    "causal": (),
    "in_flight": (),
    "memory_waits": (),
}


def whole_text(report: Report, shown: Sequence[ReportLaunch] = ()) -> Iterator[str]:
    """Yield a list with the answers on the launches that are ``shown``, in parts.

    By default, the median launch of each variant and process is shown, and its ``other_launches`` has a row for each
    other launch of the same. The list also ends if a launch that is damaged raises ``KprofError``.
    """
    answers = Answers(report)
    chosen = {id(one) for one in shown or [one for kernel in report.program.kernels for one in kernel.middles]}
    others: defaultdict[Path, list[LaunchRow]] = defaultdict(list)
    for one in report.launches:
        if id(one) not in chosen:
            others[one.launch.kernel.folder].append(launch_row(one, one.known_analysis))
    separator = "["
    try:
        for one in (one for one in report.launches if id(one) in chosen):
            text = json_text(json_values(answers.on(one, others[one.launch.kernel.folder])))
            yield separator + f"\n{text}".replace("\n", "\n ")
            separator = ","
            if len(chosen) > _MAX_KEPT:
                one.forget()
    finally:
        if separator == ",":
            yield "\n]\n"


def answer_schema() -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of an item of the list."""
    return schema_of(Answer, "kprof-inject report --json")


def brief_text(report: Report, budget: int) -> str:
    """Return a line of at most ``budget`` tokens with the first answer.

    A token has four characters. Figures have four digits, long texts are cut. ``left_out`` says how many items of which
    keys did not fit. Raises ``KprofError`` if the parts that are always there do not fit.
    """
    values = json_values(Answers(report).first)
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
