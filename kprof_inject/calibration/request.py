"""What is to be measured, and where the process that does it finds that and leaves what came out: files of a folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from msgspec import Struct

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.record_cost import CostKey, MeasuredCost
from kprof_inject.capture.schema import Text, decode, encode, read_json
from kprof_inject.errors import KprofError
from kprof_inject.files import write_bytes, write_json

_REQUEST_FILE = "request.json"
_RESULT_FILE = "result.json"


@dataclass(frozen=True, slots=True)
class Request:
    """A cost to be measured, on the device with this UUID, or if it is empty on any with the name in ``key``."""

    key: CostKey
    device_uuid: str

    @property
    def mode(self) -> Mode:
        """One of the modes that the key stands for."""
        warps = (0,) if self.key.some_warps else ()
        return Mode(self.key.buffer, 0, self.key.clock_bits, warps, self.key.sched_stores)

    def write(self, folder: Path) -> None:
        """Ask for it in ``folder``."""
        (folder / _RESULT_FILE).unlink(missing_ok=True)
        write_json(folder / _REQUEST_FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Request:
        """What is asked for in ``folder``. Raises ``KprofError``."""
        path = folder / _REQUEST_FILE
        return decode(read_json(path, folder), cls, str(path))


class _Failure(Struct, frozen=True):
    error: Text = ""


def write_result(folder: Path, result: MeasuredCost | KprofError) -> None:
    """Answer the request in ``folder``."""
    answer = _Failure(result.what) if isinstance(result, KprofError) else result
    write_bytes(folder / _RESULT_FILE, encode(answer) + b"\n")


def read_result(folder: Path) -> MeasuredCost | None:
    """The answer in ``folder``; None if there is none. Raises ``KprofError`` if the answer is an error."""
    path = folder / _RESULT_FILE
    if not path.exists():
        return None
    answer = read_json(path, folder)
    failure = decode(answer, _Failure, str(path))
    if failure.error:
        raise KprofError(failure.error)
    return decode(answer, MeasuredCost, str(path))
