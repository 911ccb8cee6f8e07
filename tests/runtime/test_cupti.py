"""Our table of CUPTI's structures is that of the headers that Triton brings along."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from kprof_inject.errors import KprofError
from kprof_inject.runtime.counters import cupti

triton = pytest.importorskip("triton")
HEADERS = Path(triton.__file__).parent / "backends/nvidia/include"
STRUCTURE = re.compile(r"typedef struct[^{};]*\{(?P<fields>[^{}]*)\}\s*(?P<name>\w+);")
# A union of at most 24 bytes: the header says so in its member for invalid data.
INFORMATION = "CUpti_PCSamplingConfigurationInfo"
# Of one function alone, the structure has another name.
OTHER_NAMES = {"CUpti_PCSamplingConfigurationInfoParams": "cuptiPCSamplingSetConfigurationAttribute"}
SIZES = {"uint64_t": 8, "size_t": 8, "uint32_t": 4, "uint16_t": 2, "uint8_t": 1, "CUcontext": 8}


def name_of(structure: str) -> str:
    """The function that takes a structure, or the structure's own name if none does."""
    if not structure.endswith("Params"):
        return structure
    function = structure.replace("CUpti", "cupti").replace("_", "").removesuffix("Params")
    return OTHER_NAMES.get(structure, function)


def headers() -> dict[str, list[tuple[str, str]]]:
    found = {}
    for header in HEADERS.glob("cupti_*.h"):
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(), flags=re.DOTALL)
        for match in STRUCTURE.finditer(text):
            fields = [field.split() for field in match["fields"].split(";") if field.strip()]
            found[name_of(match["name"])] = [(" ".join(words[:-1]), words[-1]) for words in fields]
    return found


@pytest.mark.parametrize("name", sorted(set(cupti.STRUCTURES) - {INFORMATION}))
def test_a_structure_has_the_fields_of_the_header(name: str) -> None:
    expected = headers()[name]
    names = [field.lstrip("*") for _, field in expected]
    assert [field for field, _ in cupti.STRUCTURES[name]] == names[: len(cupti.STRUCTURES[name])]
    for (_, kind), (declared, field) in zip(cupti.STRUCTURES[name], expected, strict=False):
        is_pointer = "*" in declared or field.startswith("*")
        size = 8 if is_pointer else SIZES.get(declared.replace("const ", ""), 4)  # an enum has 4
        assert ctypes.sizeof(kind) == size, field


def test_the_sizes_that_cupti_returns_in_arrays() -> None:
    sizes = [ctypes.sizeof(cupti.structure(name)) for name in ("CUpti_PCSamplingPCData", "CUpti_PCSamplingData")]
    assert [*sizes, ctypes.sizeof(cupti.structure(INFORMATION))] == [64, 80, 32]


def test_the_size_of_a_structure_ends_with_its_last_field() -> None:
    assert cupti.end_of(cupti.structure("cuptiRangeProfilerStop"), "isAllPassSubmitted") == 41


def library_in(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_the_library_is_that_of_the_drivers_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = library_in(tmp_path, "triton/backends/nvidia/lib/cupti/libcupti.so.12")
    newer = library_in(tmp_path, "nvidia/cu13/lib/libcupti.so.13")
    monkeypatch.setattr(cupti.sys, "path", [str(tmp_path)])
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "none"))
    for version, expected in ((13000, newer), (14010, newer), (12080, older), (11000, older)):
        monkeypatch.setattr(cupti, "driver_version", lambda version=version: version)
        assert cupti.find_cupti() == expected


def test_without_a_library_the_hint_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupti.sys, "path", [])
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(KprofError, match="no CUPTI") as error:
        cupti.find_cupti()
    assert "pip install nvidia-cuda-cupti" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("parameters", "capabilities", "expected"),
    [
        ("RmProfilingAdminOnly: 0", "0000000000000000", True),
        ("RmProfilingAdminOnly: 1", "0000000000000000", False),
        ("RmProfilingAdminOnly: 1", "000001fffeffffff", True),
        ("", "0000000000000000", True),
        (None, "000001fffeffffff", False),
    ],
)
def test_who_may_read_the_counters(
    parameters: str | None, capabilities: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, status = tmp_path / "params", tmp_path / "status"
    if parameters is not None:
        file.write_text(f"Mobile: 4294967295\n{parameters}\n")
    status.write_text(f"CapPrm:\t0000000000000000\nCapEff:\t{capabilities}\n")
    monkeypatch.setattr(cupti, "_DRIVER_PARAMETERS", file)
    monkeypatch.setattr(cupti, "_STATUS", status)
    assert cupti.is_permitted() is expected
    assert cupti.has_nvidia_module() is (parameters is not None)
