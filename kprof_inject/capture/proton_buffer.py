"""A file with Proton's own ``host_buffer`` as a capture: of one launch, about which little else is known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.origin import Origin
from kprof_inject.capture.proton_header import ProtonHeader, read_header
from kprof_inject.capture.proton_names import checked_names
from kprof_inject.capture.proton_payload import Recording, recording_of
from kprof_inject.capture.reader import Capture, Kernel, Launch, Process
from kprof_inject.capture.schema import ProcessRecord
from kprof_inject.capture.scopes import ScopeInfo, ScopeTable
from kprof_inject.errors import KprofError

_UNKNOWN = "unknown"
_SCOPE_KIND = "scope"


def read_proton_buffer(path: Path, scope_names: Mapping[int, str] | None = None) -> Capture:
    """Open a ``host_buffer`` that was saved as it is. ``scope_names`` are the names of its scope ids (see
    ``proton_names``); an id that they do not name is called ``scope N``.

    What the file does not tell is looked for in its records, which are read once for that: the layout, the bits of the
    clock, whether stores were moved, the ids. The kernel is called what the file is; its scopes have no source and no
    parents, the grid is the number of CTAs, and the SM's clock is unknown (0). Raises ``KprofError`` if the file is
    damaged, or a name is that of no scope id.
    """
    given = checked_names(scope_names or {}, "the table of names")
    header = read_header(path)
    recording = recording_of(_payload(path, header), header.num_warps, header.recorded)
    names = {scope_id: f"scope {scope_id}" for scope_id in recording.scope_ids} | given
    kernel = _kernel(path, header, recording, dict(sorted(names.items())))
    origin = Origin(path.stem, 0, None, "", "", (), (), ())
    launch = Launch(
        kernel=kernel,
        origin=origin,
        index=0,
        grid=(header.rows, 1, 1),
        device=0,
        stream=0,
        host_ns=0,
        folder=path.parent,
        file=path.name,
        buffer_bytes=header.rows * header.row_bytes,
        graph=False,
        offset_bytes=header.payload_offset,
    )
    return Capture(path, (Process(origin, ProcessRecord(pid=0), (launch,), True, {}, 0),))


def _kernel(path: Path, header: ProtonHeader, recording: Recording, names: dict[int, str]) -> Kernel:
    all_warps = len(header.recorded) == header.num_warps
    return Kernel(
        variant=path.stem,
        name=path.stem,
        num_warps=header.num_warps,
        stride_bytes=header.row_bytes,
        layout=recording.layout,
        scope_ids=names,
        scopes=ScopeTable(
            tuple(ScopeInfo(name, name, _SCOPE_KIND, "", (), -1) for name in dict.fromkeys(names.values()))
        ),
        sm_clock_hz=0.0,
        mode=Mode(
            buffer=_UNKNOWN,
            buffer_bytes=recording.ring_bytes * len(header.recorded),
            clock_bits=recording.clock_bits,
            warps=() if all_warps else header.recorded,
            sched_stores=recording.stores_moved,
        ),
        metadata={
            "num_warps": header.num_warps,
            "profile_scratch_size": header.row_bytes,
            "target": {"backend": header.backend or _UNKNOWN, "arch": _UNKNOWN},
        },
        # Of the kernel there are no files.
        folder=path,
    )


def _payload(path: Path, header: ProtonHeader) -> NDArray[np.uint32]:
    try:
        words = np.fromfile(path, "<u4", header.rows * header.row_bytes // 4, offset=header.payload_offset)
    except OSError as error:
        raise KprofError(f"cannot read {path}: {error.strerror}") from None
    if words.nbytes != header.rows * header.row_bytes:
        raise KprofError(f"{path} was cut off while it was read", hint="give a file that nobody writes to")
    return words.reshape(header.rows, -1)
