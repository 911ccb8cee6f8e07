"""Reads a trace of ``torch.profiler``: its kernels, and the calls that launched them.

The format is Chrome's, as Kineto writes it (pytorch/kineto: ``libkineto/src/output_json.cpp``, and
``CuptiActivity.cpp`` for the arguments of a kernel). An object holds ``traceEvents``. In it a kernel is an ``X`` event
of category ``kernel``, with ``device``, ``stream``, ``correlation``, ``grid`` and ``block``; the call that launched it
is one of ``cuda_runtime`` or ``cuda_driver`` with the same ``correlation``. Times are microseconds from
``baseTimeNanoseconds``, which are Unix time; older traces lack the base, and have Unix time in full.

Proton's trace of a whole program (triton-lang/triton: ``third_party/proton/csrc/lib/Data/TraceData.cpp``) has kernels
of the same category, with a name and a time that counts from the first of them, and none of these arguments.

The text stays as it is: what is read of it is where its events end, and what matching needs.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TypeGuard

from kprof_inject.errors import KprofError, Position
from kprof_inject.files import read_regular
from kprof_inject.quantities import size_text
from kprof_inject.workspace_paths import similar_places

MOST_BYTES = 2 << 30
"""Of a trace, unpacked: it is in memory as a whole. Viewers refuse less than that."""

OURS = "kprof_inject"
"""The key of what we say about a merged trace, beside its events."""

ARROW_IDS = ("id", "bind_id")
"""The members of an event that hold across processes: the ids of arrows, and of what is asynchronous."""

_KERNELS = "kernel"
_LAUNCHING = ("cuda_runtime", "cuda_driver")
_OF_THE_HOST = ("cpu_op", "user_annotation", "python_function", *_LAUNCHING)

# What Kineto has had no base for is later than this: 2001, in microseconds of Unix time.
_UNIX_TIME_US = 10**15
# The year 2043: of a base and of a time. Their sum is within the bounds of the capture's schema.
_MOST_NS = 1 << 61
_MOST_DIGITS = 20

_GZIP_MAGIC = b"\x1f\x8b"
_BLANKS = re.compile(r"[ \t\n\r]*")
# Floats stay text: 64 bits cannot hold the nanoseconds of Unix time as microseconds. Names of Python functions may
# hold control characters.
_DECODER = json.JSONDecoder(parse_float=str, strict=False)

_STRUCTURE = re.compile(r"[][{},:]")

ANOTHER = "name a trace that torch.profiler's export_chrome_trace wrote"
_EXPORT_AGAIN = "export it again: export_chrome_trace has to end before the file is read, and the disk must have room"


@dataclass(frozen=True, slots=True)
class Span:
    start_ns: int
    end_ns: int

    def later(self, by_ns: int) -> Span:
        return Span(self.start_ns + by_ns, self.end_ns + by_ns)


@dataclass(frozen=True, slots=True)
class Bar:
    """A kernel in the trace. Times are nanoseconds of ``TorchTrace.base_ns``'s clock; None is what it does not tell.

    ``pid`` and ``tid`` are where it is drawn, as the trace has them; ``call`` is the host's call that launched it."""

    name: str
    span: Span
    pid: int | str
    tid: int | str
    device: int | None = None
    stream: int | None = None
    correlation: int | None = None
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    call: Span | None = None


@dataclass(frozen=True, slots=True)
class TorchTrace:
    """``text[:events_end]`` ends with the last event, ``text[events_end:]`` begins with the bracket behind it, and
    ``events_begin`` is behind the one before the first.

    ``is_unix_time`` says whether the bars' times are such; ``base_ns`` is what the trace counts from. ``pids`` are its
    processes, ``process_names`` and ``sort_indices`` what they are called and where they stand, ``ids`` the numbers of
    all processes and threads, ``host_pids`` the processes that ran the program. No arrow has a number above
    ``highest_arrow``."""

    path: Path
    text: str
    events_begin: int
    events_end: int
    bars: tuple[Bar, ...]
    base_ns: int
    is_unix_time: bool
    rank: int | None
    host_pids: frozenset[int]
    pids: frozenset[int | str]
    ids: frozenset[int]
    process_names: dict[int | str, str]
    sort_indices: dict[int | str, int]
    highest_arrow: int

    @property
    def who(self) -> str:
        """What to call it beside others."""
        return self.path.name if self.rank is None else f"rank {self.rank}"

    def events(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Each event again, with where its text begins and ends. Floats are text."""
        for begin, end, event in _elements(self.text, self.events_begin):
            if isinstance(event, dict):
                yield begin, end, event


def member_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """The members of a JSON object: the name of each, and where its value begins and ends."""
    at = _expect(text, 0, "{")
    while text[_skip(text, at)] != "}":
        name, at = _DECODER.raw_decode(text, _skip(text, at))
        begin = _skip(text, _expect(text, at, ":"))
        _, at = _DECODER.raw_decode(text, begin)
        yield str(name), begin, at
        at = _skip(text, at)
        at += text[at] == ","


def read_torch_trace(path: Path) -> TorchTrace:
    """Raises ``KprofError`` for what is no such trace, or has no kernel."""
    text = _unpacked(path).decode(errors="surrogateescape")
    try:
        return _read(path, text)
    except json.JSONDecodeError as error:
        raise _unreadable(path, text, error) from None
    except ValueError:  # Python reads no integer of more than 4300 digits
        raise KprofError(f"{path} is not a trace: it has a number of thousands of digits", hint=ANOTHER) from None
    except RecursionError:
        raise KprofError(f"{path} is not a trace: it is nested too deeply", hint=ANOTHER) from None


def _unreadable(path: Path, text: str, error: json.JSONDecodeError) -> KprofError:
    first, rest = text[_skip(text, 0) :][:1], text[error.pos :]
    if not first:
        return KprofError(f"{path} is empty", hint=_EXPORT_AGAIN)
    where = Position.at_offset(str(path), text, error.pos)
    if first == "[":
        what = "this is a bare list of events, but a merged trace needs an object"
        return KprofError(what, where=where, hint='write {"traceEvents": before the list, and } after it')
    # Where a text that was cut ends, nothing follows but what is left of a string, a word or a number.
    if first == "{" and (error.msg.startswith("Unterminated string") or not _STRUCTURE.search(rest)):
        return KprofError("the trace is truncated", where=where, hint=_EXPORT_AGAIN)
    return KprofError(f"this is not a trace: {error.msg}", where=where, hint=ANOTHER)


def packed_text(text: str) -> bytes:
    """A part of a trace's text as the bytes that it had."""
    return text.encode(errors="surrogateescape")


def _unpacked(path: Path) -> bytes:
    if not path.exists():
        raise KprofError(f"{path} does not exist", hint=f"{similar_places(path)}{ANOTHER}")
    data = read_regular(path, MOST_BYTES)
    if not data.startswith(_GZIP_MAGIC):
        return data
    try:
        data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        hint = f"it is truncated or damaged; {_EXPORT_AGAIN}"
        raise KprofError(f"cannot unpack {path}: {error}", hint=hint) from None
    if len(data) > MOST_BYTES:
        raise KprofError(
            f"{path} is too large: unpacked, it has more than {size_text(MOST_BYTES)}",
            hint="profile fewer steps: torch.profiler.schedule(wait=1, warmup=1, active=3)",
        )
    return data


def _read(path: Path, text: str) -> TorchTrace:
    gathered = _Gathered()
    facts: dict[str, Any] = {}
    events_at: tuple[int, int] | None = None
    at = _expect(text, 0, "{")
    while True:
        at = _skip(text, at)
        if text[at : at + 1] == "}":
            break
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _expect(text, at, ":"))
        if key == "traceEvents" and events_at is not None:
            raise KprofError(f"{path} is not a trace: it has traceEvents twice", hint=ANOTHER)
        if key == "traceEvents" and text[at : at + 1] == "[":
            begin = end = at + 1
            for _, end, event in _elements(text, begin):  # noqa: B007 (the last one counts)
                gathered.add(event)
            events_at = begin, end
            at = _expect(text, end, "]")
        else:
            facts[str(key)], at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != "}":
            raise json.JSONDecodeError("expected , or }", text, at)
    if _skip(text, at + 1) != len(text):
        raise KprofError(
            f"{path} holds more than one object",
            hint="Proton in older Tritons writes one per stream; use a program with one stream, or torch.profiler's "
            "trace",
        )
    if OURS in facts:
        raise KprofError(
            f"{path} already contains kprof-inject launches", hint="give the trace that torch.profiler wrote"
        )
    if events_at is None:
        raise KprofError(f"{path} is not a trace: it has no traceEvents", hint=ANOTHER)
    if not gathered.has_kernels:
        raise KprofError(
            f"{path} has no kernel", hint="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        )
    base = facts.get("baseTimeNanoseconds")
    base_ns = base if _is_time(base) else 0
    bars = tuple(gathered.bars(base_ns))
    if not bars:
        raise KprofError(f"{path} has no kernel with a name and times", hint=ANOTHER)
    distributed = facts.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    return TorchTrace(
        path,
        text,
        *events_at,
        bars,
        base_ns,
        is_unix_time=base_ns > 0 or bars[0].span.start_ns > _UNIX_TIME_US * 1000,
        rank=rank if isinstance(rank, int) else None,
        host_pids=frozenset(gathered.host_pids),
        pids=frozenset(gathered.pids),
        ids=frozenset(gathered.ids),
        process_names=gathered.process_names,
        sort_indices=gathered.sort_indices,
        highest_arrow=gathered.highest_arrow,
    )


def _elements(text: str, at: int) -> Iterator[tuple[int, int, Any]]:
    """Those of the array whose bracket is before ``at``: where each begins and ends, and itself."""
    at = _skip(text, at)
    if text[at : at + 1] == "]":
        return
    while True:
        event, end = _DECODER.raw_decode(text, at)
        yield at, end, event
        at = _skip(text, end)
        if text[at : at + 1] != ",":
            _expect(text, at, "]")
            return
        at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _expect(text: str, at: int, character: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] != character:
        raise json.JSONDecodeError(f"expected {character}", text, at)
    return at + 1


@dataclass(slots=True)
class _Gathered:
    """What is kept of the events. Times are the trace's own until the base is known, which may stand behind them, as a
    kernel's call may stand behind the kernel."""

    has_kernels: bool = False
    kernels: list[Bar] = field(default_factory=list)
    calls: dict[int, Span] = field(default_factory=dict)
    host_pids: set[int] = field(default_factory=set)
    pids: set[int | str] = field(default_factory=set)
    ids: set[int] = field(default_factory=set)
    process_names: dict[int | str, str] = field(default_factory=dict)
    sort_indices: dict[int | str, int] = field(default_factory=dict)
    highest_arrow: int = 0

    def add(self, event: Any) -> None:
        if not isinstance(event, dict):
            return
        pid, tid, category, args = event.get("pid"), event.get("tid"), event.get("cat"), _args(event)
        self.ids.update(number for number in (pid, tid) if isinstance(number, int))
        if isinstance(pid, int | str):
            self.pids.add(pid)
            self._add_name(pid, event.get("name"), args)
        for name in ARROW_IDS:
            if name in event:
                self.highest_arrow = max(self.highest_arrow, _integer(event[name]) or 0)
        if category == _KERNELS and event.get("ph") == "X":
            self.has_kernels = True
            self.kernels.extend(_kernels_of(event, args))
        elif category in _OF_THE_HOST and isinstance(pid, int):
            self.host_pids.add(pid)
        if category in _LAUNCHING and "Launch" in str(event.get("name")):
            correlation, span = _integer(args.get("correlation")), _span(event)
            if correlation is not None and span is not None:
                self.calls[correlation] = span

    def bars(self, base_ns: int) -> Iterator[Bar]:
        """The kernels, in their order, with their calls."""
        for kernel in self.kernels:
            call = None if kernel.correlation is None else self.calls.get(kernel.correlation)
            yield replace(kernel, span=kernel.span.later(base_ns), call=call and call.later(base_ns))

    def _add_name(self, pid: int | str, event_name: Any, args: dict[str, Any]) -> None:
        name, index = args.get("name"), args.get("sort_index")
        if event_name == "process_name" and isinstance(name, str):
            self.process_names[pid] = name
        elif event_name == "process_sort_index" and isinstance(index, int):
            self.sort_indices[pid] = index


def _kernels_of(event: dict[str, Any], args: dict[str, Any]) -> Iterator[Bar]:
    """The kernel of an event, if it has a name and times."""
    name, span = event.get("name"), _span(event)
    if isinstance(name, str) and span is not None:
        pid, tid = (place if isinstance(place, int | str) else 0 for place in (event.get("pid"), event.get("tid")))
        yield Bar(
            sys.intern(name),
            span,
            pid,
            tid,
            _integer(args.get("device")),
            _integer(args.get("stream")),
            _integer(args.get("correlation")),
            _sizes(args.get("grid")),
            _sizes(args.get("block")),
        )


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_time(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_NS


def _sizes(value: Any) -> tuple[int, ...] | None:
    sound = isinstance(value, list) and len(value) == 3 and all(_integer(size) is not None for size in value)
    return tuple(value) if sound else None


def _span(event: dict[str, Any]) -> Span | None:
    start_ns, length_ns = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
    if start_ns is None or length_ns is None or not _is_time(start_ns) or not _is_time(length_ns):
        return None
    return Span(start_ns, start_ns + length_ns)


def nanoseconds(microseconds: Any) -> int | None:
    """What the decoder made of a number of microseconds, to the nearest nanosecond; None if it is no number."""
    if _integer(microseconds) is not None:
        return int(microseconds) * 1000
    if not isinstance(microseconds, str):
        return None
    try:
        exact = Decimal(microseconds)
    except InvalidOperation:
        return None
    return int((exact * 1000).to_integral_value()) if exact.is_finite() and exact.adjusted() < _MOST_DIGITS else None
