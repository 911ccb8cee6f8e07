"""Reader of other profilers' buffers, from ``numpy.save`` or as an array, as captures of one launch.

Such a buffer has neither its profiler's name nor the names of its events: options give them, or a JSON file next to it
(``BufferDescription``).
"""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct, structs
from numpy.typing import NDArray

from kprof_inject.capture.encoding import converted, decode
from kprof_inject.capture.foreign.cute import read_cute, read_cute_compact
from kprof_inject.capture.foreign.entries import Entries, Profiler, Recorded
from kprof_inject.capture.foreign.sm_profiler import read_sm_profiler
from kprof_inject.capture.foreign.strided import read_flashinfer, read_triton_distributed
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.model import Capture, Kernel, capture_of_buffer
from kprof_inject.capture.scopes import ScopeInfo, ScopeKind, ScopeTable
from kprof_inject.errors import KprofError, did_you_mean
from kprof_inject.files import read_regular
from kprof_inject.quantities import counted

BufferFormat = Literal["sm-profiler", "triton-distributed", "flashinfer", "cute", "cute-compact"]

PROFILERS: dict[BufferFormat, Profiler] = {
    "sm-profiler": Profiler(read_sm_profiler),
    "triton-distributed": Profiler(read_triton_distributed),
    "flashinfer": Profiler(read_flashinfer),
    "cute": Profiler(read_cute, "unit", "lane", takes_units=True),
    "cute-compact": Profiler(read_cute_compact, "unit", "lane", takes_units=True),
}


def _profiler_of(name: str) -> Profiler:
    if name not in PROFILERS:
        raise KprofError(
            f"no profiler is called {name!r}",
            hint=f"{did_you_mean(name, PROFILERS)}known profilers: {', '.join(PROFILERS)}",
            exit_code=2,
        )
    return PROFILERS[name]


ENDINGS = (".npy", ".npz")
_WORD_BYTES = 8
# More than any of these profilers has bits for.
_MAX_EVENTS = 1 << 12
_MAX_DESCRIPTION_BYTES = 1 << 20
_FORMATS = ", ".join(PROFILERS)
_HOW = "name the profiler that wrote it: format="
_ARGUMENTS = "see help(kprof_inject.read_buffer)"
_HOW_OF_FILE = "name the profiler that wrote it: --buffer-format, or format in a .json file next to it"
_SAVE_AGAIN = "save it again: numpy.save(PATH, buffer.cpu().numpy())"
_GIVE_ARRAY = "give the profiler's buffer as it is: buffer.cpu().numpy(); bytes: numpy.frombuffer(data, 'u8')"
_UNKNOWN = "unknown"
# Exceptions of NumPy and its parsers for damaged files. NumPy reads a header as a Python literal, and an invalid one
# token by token, and checks little of the result. A zip file's flags can say that it is encrypted.
_UNREADABLE = (
    ValueError,
    EOFError,
    SyntaxError,
    tokenize.TokenError,
    TypeError,
    IndexError,
    OverflowError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


class BufferDescription(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts about a buffer that it lacks; also the form of the JSON file next to it.

    None means that a fact is not given.
    """

    format: str | None = None
    """Name of the profiler in ``PROFILERS``."""
    names: list[str] | dict[int, str] | None = None
    """Names of events, by their numbers; other events are called ``scope N``."""
    kernel: str | None = None
    """Name of the kernel; the file's name if it is not given."""
    units: Annotated[int, Meta(ge=1)] | None = None
    """Number of slices, for a profiler whose buffers are divided into slices."""
    unit_name: str | None = None
    """Author's name for the unit of a slice: ``Block``, ``Warp``."""

    def over(self, other: BufferDescription) -> BufferDescription:
        """Return these facts, completed by those of ``other``."""
        given = {name: value for name, value in structs.asdict(self).items() if value is not None}
        return structs.replace(other, **given)

    def name_of(self) -> Mapping[int, str]:
        """Return the names by the event's number, without empty ones."""
        named = dict(enumerate(self.names)) if isinstance(self.names, list) else self.names or {}
        return {event: name for event, name in named.items() if name}


NO_DESCRIPTION = BufferDescription()


def described(given: Mapping[str, object]) -> BufferDescription:
    """Convert the facts that a program gives, by field; raises ``KprofError`` that names an invalid field."""
    return converted(given, BufferDescription, "read_buffer", _ARGUMENTS)


def parse_names(text: str) -> list[str]:
    """Parse the names of events, separated by commas."""
    return [name.strip() for name in text.split(",")]


def is_saved_array(path: Path) -> bool:
    """Return whether the file's name is that of a NumPy file."""
    return path.suffix in ENDINGS and path.is_file()


def read_saved_buffer(path: Path, description: BufferDescription = NO_DESCRIPTION) -> Capture:
    """Open a buffer that was saved with NumPy.

    ``description`` takes precedence over the JSON file next to the buffer (its name and ``.json``). Raises
    ``KprofError`` if neither gives the format, or if the buffer is not of that format.
    """
    description_path = path.with_name(f"{path.name}.json")
    if description_path.is_file():
        text = read_regular(description_path, _MAX_DESCRIPTION_BYTES)
        description = description.over(
            decode(text, BufferDescription, str(description_path), hint="see docs/file-formats.md")
        )
    try:
        return read_buffer_array(_saved(path), description, path)
    except KprofError as error:
        raise KprofError(f"{path}: {error.what}", hint=error.hint, exit_code=error.exit_code) from None


def read_buffer_array(array: Any, description: BufferDescription, path: Path | None = None) -> Capture:
    """Open a buffer that is an array of NumPy, or can be converted to one; ``path`` is its file, if any."""
    if description.format is None:
        how = _HOW_OF_FILE if path else _HOW
        raise KprofError("the profiler that wrote the array is unknown", hint=f"{how}; one of {_FORMATS}", exit_code=2)
    profiler = _profiler_of(description.format)
    if not profiler.takes_units and (description.units is not None or description.unit_name is not None):
        raise KprofError(
            f"a buffer of {description.format} has no units: its header gives its CTAs and groups",
            hint="leave units and unit_name out (--buffer-units)",
            exit_code=2,
        )
    names = description.name_of()
    if wrong := [event for event in names if not 0 <= event < _MAX_EVENTS]:
        raise KprofError(
            f"event {wrong[0]} is out of range: events go from 0 to {_MAX_EVENTS - 1}",
            hint="name events by their numbers: a list begins with that of event 0",
            exit_code=2,
        )
    words = _words(array, _SAVE_AGAIN if path else _GIVE_ARRAY)
    entries = profiler.read(words, description.units or 1, max(names, default=-1) + 1)
    _require_entries(entries, description.format, profiler)
    path = path or Path("buffer")
    table, scope_of_event = _table(entries, names)
    kernel = _kernel(entries, profiler, description, table, path)
    ctas = len(np.unique(entries.units["cta"])) + entries.silent_ctas
    return capture_of_buffer(kernel, path, ctas, words.nbytes, recorded=Recorded(entries, scope_of_event))


def _require_entries(entries: Entries, format_name: str, profiler: Profiler) -> None:
    """Raise ``KprofError`` if there are no entries, or if most are invalid, as those of another profiler would be."""
    units = entries.units
    damaged, kept = int(units["damaged"].sum()), int((units["written"] - units["lost"]).sum())
    if not kept or 2 * damaged > kept:
        also = ", and its number of units" if profiler.takes_units and kept else ""
        raise KprofError(
            f"{damaged} of {kept} entries are not {format_name} entries" if kept else "it has no records",
            hint=f"save the buffer after the launch, and name its profiler{also}; one of {_FORMATS}",
        )


def _saved(path: Path) -> NDArray[Any]:
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            if len(found.files) != 1:
                raise KprofError(f"it has {len(found.files)} arrays, but a buffer is a single array", hint=_SAVE_AGAIN)
            array: NDArray[Any] = found[found.files[0]]
            return array
    except (*_UNREADABLE, OSError, MemoryError) as error:
        raise KprofError(f"NumPy cannot read it: {error}", hint=_SAVE_AGAIN) from None


def _words(array: Any, hint: str) -> NDArray[np.uint64]:
    try:
        found = np.ascontiguousarray(array).reshape(-1)
    except (TypeError, ValueError, RuntimeError) as error:
        raise KprofError(
            f"NumPy cannot make an array of it: {error}", hint="copy it to the host first: buffer.cpu()"
        ) from None
    if found.dtype.kind not in "iu" or found.nbytes % _WORD_BYTES:
        raise KprofError(
            f"a buffer consists of 64-bit integers, but this has {counted(found.size, 'item')} of {found.dtype}",
            hint=hint,
        )
    return found.astype(found.dtype.newbyteorder("<"), copy=False).view("<u8")


def _table(entries: Entries, names: Mapping[int, str]) -> tuple[ScopeTable, NDArray[np.int16]]:
    """Return the scopes in the order of their events, instants last, and the scope of each event.

    Events of one name are one scope. Names that never occur are included.
    """
    kinds = sorted(entries.kinds() | {(event, False) for event in names}, key=lambda kind: (kind[1], kind[0]))
    occurs_as_instant = {event for event, is_instant in entries.kinds() if is_instant}
    ranges = {event for event, is_instant in entries.kinds() if not is_instant}
    kinds = [kind for kind in kinds if kind[1] or kind[0] in ranges or kind[0] not in occurs_as_instant]
    found: dict[tuple[str, bool], int] = {}
    scope_of_event = np.full((max((event for event, _ in kinds), default=0) + 1, 2), -1, dtype=np.int16)
    for event, is_instant in kinds:
        name = names.get(event, f"scope {event}")
        scope_of_event[event, int(is_instant)] = found.setdefault((name, is_instant), len(found))
    scopes = (
        ScopeInfo(
            record=name,
            name=name,
            kind=ScopeKind.INSTANT if is_instant else ScopeKind.UNKNOWN,
            source="",
            called_from=(),
            parent=-1,
        )
        for name, is_instant in found
    )
    return ScopeTable(tuple(scopes)), scope_of_event


def _kernel(
    entries: Entries, profiler: Profiler, description: BufferDescription, table: ScopeTable, path: Path
) -> Kernel:
    numbers = np.unique(entries.units["warp"]).tolist()
    count = numbers[-1] + 1
    name = description.kernel or path.stem
    return Kernel(
        variant=path.stem,
        name=name,
        num_warps=count,
        stride_bytes=_WORD_BYTES,
        # ``Launch.recorded`` takes precedence over this layout, which is for Proton's buffers.
        layout="timed",
        scope_ids={},
        scopes=table,
        sm_clock_hz=0.0,
        mode=Mode(buffer=_UNKNOWN, warps=() if len(numbers) == count else tuple(numbers)),
        metadata={"num_warps": count, "target": {"backend": _UNKNOWN, "arch": _UNKNOWN}},
        # The kernel has no files.
        folder=path,
        cta_name=description.unit_name or profiler.cta_name,
        warp_name=profiler.unit_name,
    )
