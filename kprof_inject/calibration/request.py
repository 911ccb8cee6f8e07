"""What is to be measured, and where the process that does it finds that and leaves what came out: files of a folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.record_cost import CostKey, MeasuredCost
from kprof_inject.errors import KprofError
from kprof_inject.files import read_object, write_json

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
        values = read_object(folder / _REQUEST_FILE, "key", "device_uuid")
        return cls(CostKey(**values["key"]), values["device_uuid"])


def write_result(folder: Path, result: MeasuredCost | KprofError) -> None:
    """Answer the request in ``folder``."""
    write_json(folder / _RESULT_FILE, {"error": result.what} if isinstance(result, KprofError) else result.to_json())


def read_result(folder: Path) -> MeasuredCost | None:
    """The answer in ``folder``; None if there is none. Raises ``KprofError`` if the answer is an error."""
    path = folder / _RESULT_FILE
    if not path.exists():
        return None
    values = read_object(path)
    if "error" in values:
        raise KprofError(str(values["error"]))
    return MeasuredCost.from_json(values, path)
