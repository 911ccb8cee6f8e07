"""Reader for a trace of ``torch.profiler``: its kernels, and the calls that launched them.

The format is Chrome's, as Kineto writes it (pytorch/kineto: ``libkineto/src/output_json.cpp``, and
``CuptiActivity.cpp`` for the arguments of a kernel). The trace is an object with ``traceEvents``. A kernel is an ``X``
event of category ``kernel``, with ``device``, ``stream``, ``correlation``, ``grid`` and ``block``. The call that
launched it is an event of category ``cuda_runtime`` or ``cuda_driver`` with the same ``correlation``. Times are
microseconds since ``baseTimeNanoseconds``, which is Unix time. Older traces have no base: their times are Unix time.

Proton's trace of a whole program (triton-lang/triton: ``third_party/proton/csrc/lib/Data/TraceData.cpp``) has kernels
of the same category. They have a name, and times that count from the first kernel, but none of these arguments.

The text is kept unchanged. The reader only finds where its events end, and what matching and merging need.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TypeGuard

from msgspec import Struct, field
from msgspec.structs import replace

from kprof_inject.errors import KprofError, Position
from kprof_inject.files import read_regular
from kprof_inject.quantities import size_text
from kprof_inject.workspace_paths import similar_places

MAX_BYTES = 2 << 30
"""Maximum size of an unpacked trace, which is in memory as a whole. Viewers already refuse smaller ones."""

SUMMARY_KEY = "kprof_inject"
"""The key of our summary in a merged trace, next to ``traceEvents``."""

ARROW_IDS = ("id", "bind_id")
"""Members of an event whose values are shared by all processes: the IDs of arrows and of asynchronous events."""

_KERNEL_CATEGORY = "kernel"
_CALL_CATEGORIES = ("cuda_runtime", "cuda_driver")
_HOST_CATEGORIES = ("cpu_op", "user_annotation", "python_function", *_CALL_CATEGORIES)

# The year 2001. Times without a base that are later than this are Unix time.
_UNIX_TIME_US = 10**15
# The year 2043, for a base and for a time. The sum of both is within the bounds of the capture's schema.
_MAX_NS = 1 << 61
_MAX_DIGITS = 20

_GZIP_MAGIC = b"\x1f\x8b"
_BLANKS = re.compile(r"[ \t\n\r]*")
# Floats stay text: a 64-bit float cannot represent Unix time in microseconds to the nanosecond. Not strict, because
# names of Python functions may contain control characters.
_DECODER = json.JSONDecoder(parse_float=str, strict=False)

_STRUCTURE = re.compile(r"[][{},:]")

_FORMAT_HINT = "name a trace that torch.profiler's export_chrome_trace wrote"
_EXPORT_AGAIN = "export it again: export_chrome_trace has to end before the file is read, and the disk must have room"


class Span(Struct, frozen=True):
    """An interval of time, in nanoseconds of any clock."""

    start_ns: int
    end_ns: int

    def later(self, by_ns: int) -> Span:
        """Return the interval moved by ``by_ns``."""
        return Span(self.start_ns + by_ns, self.end_ns + by_ns)


class Bar(Struct, frozen=True):
    """A kernel in the trace. Values that the trace lacks are None.

    Times include ``TorchTrace.base_ns``. ``pid`` and ``tid`` are the trace's own, and place the kernel in the picture.
    ``call`` is the host's call that launched it.
    """

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


class TorchTrace(Struct, frozen=True):
    """A trace: its text, its kernels as ``bars``, and the IDs that it uses.

    ``events_begin`` is the offset after the opening bracket of the events. ``text[:events_end]`` ends with the last
    event, and ``text[events_end:]`` begins with the closing bracket, or with blanks before it.

    ``base_ns`` is the time from which the trace counts, and ``is_unix_time`` is true if the bars' times are Unix
    time. ``pids`` are all processes, ``host_pids`` those that ran the program; ``process_names`` and ``sort_indices``
    are their names and positions. ``ids`` are the numbers of all processes and threads. ``highest_arrow`` is the
    largest ID of an arrow, or 0.
    """

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
        """The name that distinguishes this trace from others: its rank, or else its file name."""
        return self.path.name if self.rank is None else f"rank {self.rank}"

    def events(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield each event with the offsets of its text: begin, end, event. Floats are text."""
        for begin, end, event in _elements(self.text, self.events_begin):
            if isinstance(event, dict):
                yield begin, end, event


def member_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the members of a JSON object: the name, and the offsets where its value begins and ends."""
    at = _expect(text, 0, "{")
    while text[_skip(text, at)] != "}":
        name, at = _DECODER.raw_decode(text, _skip(text, at))
        begin = _skip(text, _expect(text, at, ":"))
        _, at = _DECODER.raw_decode(text, begin)
        yield str(name), begin, at
        at = _skip(text, at)
        at += text[at] == ","


def read_torch_trace(path: Path) -> TorchTrace:
    """Read a trace, packed with gzip or not.

    Raises ``KprofError`` if the file is not such a trace, has no kernel, or is a merged trace already.
    """
    text = _unpacked(path).decode(errors="surrogateescape")
    try:
        return _read(path, text)
    except json.JSONDecodeError as error:
        raise _unreadable(path, text, error) from None
    except ValueError:  # Python reads no integer of more than 4300 digits
        raise KprofError(f"{path} is not a trace: it has a number of thousands of digits", hint=_FORMAT_HINT) from None
    except RecursionError:
        raise KprofError(f"{path} is not a trace: it is nested too deeply", hint=_FORMAT_HINT) from None


def _unreadable(path: Path, text: str, error: json.JSONDecodeError) -> KprofError:
    first, rest = text[_skip(text, 0) :][:1], text[error.pos :]
    if not first:
        return KprofError(f"{path} is empty", hint=_EXPORT_AGAIN)
    where = Position.at_offset(str(path), text, error.pos)
    if first == "[":
        what = "this is a bare list of events, but a merged trace needs an object"
        return KprofError(what, where=where, hint='write {"traceEvents": before the list, and } after it')
    # After the error in a truncated text, there is only the rest of a string, a word or a number.
    if first == "{" and (error.msg.startswith("Unterminated string") or not _STRUCTURE.search(rest)):
        return KprofError("the trace is truncated", where=where, hint=_EXPORT_AGAIN)
    return KprofError(f"this is not a trace: {error.msg}", where=where, hint=_FORMAT_HINT)


def packed_text(text: str) -> bytes:
    """Encode a part of a trace's text to the original bytes, even where they are not UTF-8."""
    return text.encode(errors="surrogateescape")


def _unpacked(path: Path) -> bytes:
    if not path.exists():
        raise KprofError(f"{path} does not exist", hint=f"{similar_places(path)}{_FORMAT_HINT}")
    data = read_regular(path, MAX_BYTES)
    if not data.startswith(_GZIP_MAGIC):
        return data
    try:
        data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        hint = f"it is truncated or damaged; {_EXPORT_AGAIN}"
        raise KprofError(f"cannot unpack {path}: {error}", hint=hint) from None
    if len(data) > MAX_BYTES:
        raise KprofError(
            f"{path} is too large: unpacked, it has more than {size_text(MAX_BYTES)}",
            hint="profile fewer steps: torch.profiler.schedule(wait=1, warmup=1, active=3)",
        )
    return data


def _read(path: Path, text: str) -> TorchTrace:
    gathered = _EventFacts()
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
            raise KprofError(f"{path} is not a trace: it has traceEvents twice", hint=_FORMAT_HINT)
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
    if SUMMARY_KEY in facts:
        raise KprofError(
            f"{path} already contains kprof-inject launches", hint="give the trace that torch.profiler wrote"
        )
    if events_at is None:
        raise KprofError(f"{path} is not a trace: it has no traceEvents", hint=_FORMAT_HINT)
    if not gathered.has_kernels:
        raise KprofError(
            f"{path} has no kernel", hint="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        )
    base = facts.get("baseTimeNanoseconds")
    base_ns = base if _is_time(base) else 0
    bars = tuple(gathered.bars(base_ns))
    if not bars:
        raise KprofError(f"{path} has no kernel with a name and times", hint=_FORMAT_HINT)
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
    """Yield the elements of the array whose opening bracket is before ``at``, as begin, end and element."""
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


class _EventFacts(Struct):
    """Facts collected from the events.

    Times do not include the base yet, because it may follow the events. For the same reason kernels have no calls yet:
    a call may follow its kernel.
    """

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
        if category == _KERNEL_CATEGORY and event.get("ph") == "X":
            self.has_kernels = True
            self.kernels.extend(_parse_kernel(event, args))
        elif category in _HOST_CATEGORIES and isinstance(pid, int):
            self.host_pids.add(pid)
        if category in _CALL_CATEGORIES and "Launch" in str(event.get("name")):
            correlation, span = _integer(args.get("correlation")), _span(event)
            if correlation is not None and span is not None:
                self.calls[correlation] = span

    def bars(self, base_ns: int) -> Iterator[Bar]:
        """Yield the kernels in the order of their events, with their calls and with times that include the base."""
        for kernel in self.kernels:
            call = None if kernel.correlation is None else self.calls.get(kernel.correlation)
            yield replace(kernel, span=kernel.span.later(base_ns), call=call and call.later(base_ns))

    def _add_name(self, pid: int | str, event_name: Any, args: dict[str, Any]) -> None:
        name, index = args.get("name"), args.get("sort_index")
        if event_name == "process_name" and isinstance(name, str):
            self.process_names[pid] = name
        elif event_name == "process_sort_index" and isinstance(index, int):
            self.sort_indices[pid] = index


def _parse_kernel(event: dict[str, Any], args: dict[str, Any]) -> Iterator[Bar]:
    """Yield the kernel of an event, if it has a name and times."""
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
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_NS


def _sizes(value: Any) -> tuple[int, ...] | None:
    sound = isinstance(value, list) and len(value) == 3 and all(_integer(size) is not None for size in value)
    return tuple(value) if sound else None


def _span(event: dict[str, Any]) -> Span | None:
    start_ns, length_ns = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
    if start_ns is None or length_ns is None or not _is_time(start_ns) or not _is_time(length_ns):
        return None
    return Span(start_ns, start_ns + length_ns)


def nanoseconds(microseconds: Any) -> int | None:
    """Convert microseconds, as the decoder returns them, to the nearest nanosecond; None if they are no number."""
    if _integer(microseconds) is not None:
        return int(microseconds) * 1000
    if not isinstance(microseconds, str):
        return None
    try:
        exact = Decimal(microseconds)
    except InvalidOperation:
        return None
    return int((exact * 1000).to_integral_value()) if exact.is_finite() and exact.adjusted() < _MAX_DIGITS else None
