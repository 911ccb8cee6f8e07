"""Proton's own buffer, saved as it is: what it holds is decoded as if we had captured it, and damage is told."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from buffers import Cta, Entry, Scope, buffer_words, end, save_launch, start
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict
from proton_files import FIELDS, file_bytes, save_file, without_times
from snapshots import check, check_cases

from kprof_inject.capture.model import Kernel, Launch
from kprof_inject.capture.proton_buffer import is_proton_buffer, read_proton_buffer
from kprof_inject.errors import KprofError
from kprof_inject.timeline.timeline import decode_launch

# The counter and the timer as an H200 has them: neither near a power of two, nor zero.
CYCLES = 0x5A5_12345678
BEGIN_NS = 1_790_000_000_000_000_000


def records(at: int, *, scopes: int = 2) -> list[Entry]:
    """A warp that entered each of its scopes and left it, one after the other, from ``at`` cycles on."""
    return [
        make(scope, CYCLES + at + 100 * scope + 60 * number)
        for scope in range(scopes)
        for number, make in enumerate((start, end))
    ]


def cta(number: int, warps: Sequence[Sequence[Entry]]) -> Cta:
    begin_ns = BEGIN_NS + 1000 * number
    return Cta(warps, number % 3, begin_ns, begin_ns + 5000, begin_ns + 6000)


def ctas(count: int, num_warps: int, *, scopes: int = 2) -> list[Cta]:
    return [cta(row, [records(50 * row + warp, scopes=scopes) for warp in range(num_warps)]) for row in range(count)]


def launch_of(path: Path, names: dict[int, str] | None = None) -> Launch:
    (launch,) = read_proton_buffer(path, names).launches
    return launch


def kernel_of(path: Path, names: dict[int, str] | None = None) -> Kernel:
    return launch_of(path, names).kernel


def test_a_saved_buffer_decodes_as_if_it_had_been_captured(tmp_path: Path) -> None:
    path = save_file(tmp_path, buffer_words(ctas(5, 4), slots=8), 4)
    saved = decode_launch(launch_of(path, {0: "load", 1: "dot"}))
    captured = decode_launch(save_launch(tmp_path, [Scope("load"), Scope("dot")], ctas(5, 4), slots=8))

    assert len(saved.scopes) == 5 * 4 * 2
    # Nanoseconds differ a little: the capture knows the nominal clock, which counts where the launch is this short.
    for column in ("cta", "sm", "warp", "scope", "start_cycles", "end_cycles"):
        assert saved.scopes[column].tolist() == captured.scopes[column].tolist()
    assert [scope.name for scope in saved.table.scopes] == ["load", "dot"]


def test_what_the_file_says_of_its_launch(tmp_path: Path) -> None:
    launch = launch_of(save_file(tmp_path, buffer_words(ctas(5, 4), slots=8), 4))
    assert (launch.kernel.name, launch.grid, launch.kernel.num_warps) == ("matmul", (5, 1, 1), 4)
    assert (launch.kernel.layout, launch.kernel.sm_clock_hz) == ("timed", None)
    assert asdict(launch.kernel.mode) == {
        **{"buffer": "unknown", "buffer_bytes": 4 * 8 * 8, "clock_bits": 64, "warps": ()},
        **{"sched_stores": False, "sched_barriers": False},
    }
    assert launch.kernel.metadata["target"]["backend"] == "cuda"
    with pytest.raises(KprofError, match="cannot read"):
        launch.kernel.ttgir()


def test_scopes_without_names_are_called_by_their_ids(tmp_path: Path) -> None:
    words = buffer_words([cta(0, [[start(7, CYCLES), end(7, CYCLES + 9), start(200, CYCLES + 20)]])], slots=4)
    kernel = kernel_of(save_file(tmp_path, words, 1), {7: "softmax", 3: "never entered"})
    assert kernel.scope_ids == {3: "never entered", 7: "softmax", 200: "scope 200"}
    # In the order of the ids, which is that of the kernel's text.
    assert [(scope.name, scope.parent, scope.source) for scope in kernel.scopes.scopes] == [
        ("never entered", -1, ""),
        ("softmax", -1, ""),
        ("scope 200", -1, ""),
    ]


def test_two_ids_of_one_name_are_one_scope(tmp_path: Path) -> None:
    path = save_file(tmp_path, buffer_words(ctas(1, 1, scopes=3), slots=8), 1)
    timeline = decode_launch(launch_of(path, {0: "load", 1: "dot", 2: "load"}))
    assert timeline.scopes["scope"].tolist() == [0, 1, 0]
    assert [scope.name for scope in timeline.table.scopes] == ["load", "dot"]


def test_iterations_of_which_only_the_starts_were_recorded_are_told_by_that(tmp_path: Path) -> None:
    starts = [start(1, CYCLES + 10 * number) for number in range(1, 5)]
    warp = [start(0, CYCLES), *starts, end(1, CYCLES + 50), end(0, CYCLES + 60)]
    # The second ring kept the last entries alone.
    for slots, ran in ((8, [0, 1, 1, 1, 1]), (4, [1, 1])):
        launch = launch_of(save_file(tmp_path, buffer_words([cta(0, [warp])], slots=slots), 1), {0: "all", 1: "each"})
        assert [(scope.kind, scope.ended_by_next) for scope in launch.kernel.scopes.scopes] == [
            ("scope", False),
            ("iter", True),
        ]
        assert decode_launch(launch).scopes["scope"].tolist() == ran


# The compiler gives the rings in ascending order to those warps that the user named in any.
@pytest.mark.parametrize("uids", [[1, 3], [3, 1], [3, 1, 3]])
def test_only_the_recorded_warps_have_rings(tmp_path: Path, uids: list[int]) -> None:
    launch = launch_of(save_file(tmp_path, buffer_words(ctas(2, 4), slots=8, recorded=(1, 3)), 4, uids))
    assert launch.kernel.mode.warps == (1, 3)
    assert decode_launch(launch).scopes["warp"].tolist() == [1, 1, 3, 3] * 2


@pytest.mark.parametrize("scopes", [0, 1, 3, 10])
@pytest.mark.parametrize("num_warps", [1, 2, 4, 6, 8, 12])
def test_the_layout_shows_in_a_single_cta(tmp_path: Path, num_warps: int, scopes: int) -> None:
    words = buffer_words(ctas(1, num_warps, scopes=scopes), slots=8)
    assert kernel_of(save_file(tmp_path, words, num_warps)).layout == "timed"
    if scopes:
        assert kernel_of(save_file(tmp_path, without_times(words), num_warps)).layout == "untimed"


def test_a_buffer_without_times_decodes(tmp_path: Path) -> None:
    path = save_file(tmp_path, without_times(buffer_words(ctas(3, 8), slots=8)), 8)
    timeline = decode_launch(launch_of(path))
    assert timeline.scope_count == 3 * 8 * 2
    assert timeline.clock.source == "nominal"


def test_a_clock_whose_upper_bits_are_zero_has_32(tmp_path: Path) -> None:
    words = buffer_words(ctas(2, 2), slots=8, clock_bits=32)
    assert kernel_of(save_file(tmp_path, words, 2)).mode.clock_bits == 32


def test_moved_stores_show_in_the_rings(tmp_path: Path) -> None:
    # A start is stored right before its end.
    moved = [start(1, CYCLES + 10), end(1, CYCLES + 30), start(0, CYCLES), end(0, CYCLES + 40)]
    path = save_file(tmp_path, buffer_words([cta(0, [moved] * 2)], slots=8), 2)
    assert kernel_of(path).mode.sched_stores
    assert decode_launch(launch_of(path)).scopes["start_cycles"].tolist() == [CYCLES, CYCLES + 10] * 2


def test_a_full_ring_does_not_look_like_moved_stores(tmp_path: Path) -> None:
    words = buffer_words([cta(0, [records(0, scopes=3), records(0, scopes=2)])], slots=4)
    assert not kernel_of(save_file(tmp_path, words, 2)).mode.sched_stores


def test_an_overflow_does_not_look_like_moved_stores(tmp_path: Path) -> None:
    edge = 1 << 32
    wraps = [start(0, edge - 30), end(0, edge - 10), start(0, edge + 10), end(0, edge + 20)]
    words = buffer_words([cta(0, [wraps])], slots=4, clock_bits=32)
    assert not kernel_of(save_file(tmp_path, words, 1)).mode.sched_stores


def test_rows_that_no_cta_wrote_are_counted(tmp_path: Path) -> None:
    # Proton's buffer may be made larger than the grid.
    words = buffer_words([*ctas(2, 2), None, None], slots=8)
    timeline = decode_launch(launch_of(save_file(tmp_path, words, 2)))
    assert (timeline.scope_count, timeline.ctas_never_ran) == (2 * 2 * 2, 2)


CONTRADICTIONS: list[tuple[str, int]] = [
    ("version", 2),
    ("header_offset", 8),
    ("header_size", 40),
    ("payload_offset", 0xFFFFFFFF),
    ("payload_size", 1028),
    ("block_num", 1),
    ("total_unit", 0),
    ("total_unit", 1000),
    ("scratch_mem_size", 510),
    ("scratch_mem_size", 2048),
    ("uid_num", 0),
]


def refusal(path: Path) -> str:
    with pytest.raises(KprofError) as caught:
        read_proton_buffer(path)
    return caught.value.render()


def test_a_header_that_contradicts_the_file_is_told_by_its_byte(tmp_path: Path) -> None:
    words = buffer_words(ctas(2, 4), slots=12)
    assert words.nbytes == 1024
    said = {
        f"{field} {value}": refusal(save_file(tmp_path, words, 4, changes={field: value}))
        for field, value in CONTRADICTIONS
    }
    check_cases("capture/proton-headers", said)


def test_a_warp_that_the_kernel_has_not_is_told_by_its_byte(tmp_path: Path) -> None:
    path = save_file(tmp_path, buffer_words(ctas(2, 4), slots=8, recorded=(1, 3)), 4, [1, 4])
    assert "byte 44: warp 4 of 4" in refusal(path)


def test_a_file_that_is_cut_anywhere_is_told_to_be(tmp_path: Path) -> None:
    data = file_bytes(buffer_words(ctas(1, 2), slots=4), 2)
    path = tmp_path / "cut.bin"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        assert re.search(rf"truncated: .* byte {size}\n", refusal(path))


def test_a_buffer_without_records_is_told_to_be_one(tmp_path: Path) -> None:
    # What Triton 3.9 packs where no kernel asked for a buffer.
    path = tmp_path / "none.bin"
    path.write_bytes(struct.pack("<11I", 1, 4, 44, 44, 0, 1, 0, 1, 0, 1, 0))
    check("capture/errors", refusal(path), "a Proton buffer without records")


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KprofError, match=r"cannot read .*: No such file"):
        read_proton_buffer(tmp_path / "none.bin")
    with pytest.raises(KprofError, match=r"cannot read .*: Is a directory"):
        read_proton_buffer(tmp_path)


def test_a_buffer_is_told_from_other_files(tmp_path: Path) -> None:
    path = save_file(tmp_path, buffer_words(ctas(1, 1), slots=4), 1)
    assert is_proton_buffer(path)
    for other in (b"", b"\1\0\0\0", b'{"traceEvents":[]}', b"\x1f\x8b\x08\x00\x00\x00\x00\x00", b"module {\n}\n"):
        path.write_bytes(other)
        assert not is_proton_buffer(path)
    assert not is_proton_buffer(tmp_path)
    assert not is_proton_buffer(tmp_path / "none.bin")


any_word = st.integers(0, 0xFFFFFFFF) | st.integers(0, 300) | st.sampled_from([512, 1024, 1 << 31])


@settings(deadline=None, max_examples=100)
@given(
    st.dictionaries(st.sampled_from(FIELDS[1:]), any_word, max_size=3),
    st.lists(st.tuples(st.integers(0, 255), any_word), max_size=6),
    st.integers(0, 8),
    st.booleans(),
)
def test_any_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    changes: dict[str, int],
    corruption: list[tuple[int, int]],
    cut: int,
    timed: bool,
) -> None:
    words = buffer_words(ctas(2, 4), slots=12)
    words = words if timed else without_times(words)
    for at, word in corruption:
        words.reshape(-1)[at] = word
    path = tmp_path_factory.getbasetemp() / "any.bin"
    data = file_bytes(words, 4, changes=changes)
    path.write_bytes(data[: len(data) - cut])
    try:
        launch = launch_of(path)
        timeline = decode_launch(launch)
    except KprofError as error:
        assert str(path) in str(error)
        return
    assert timeline.scope_count <= launch.buffer_bytes // 16
    assert (timeline.scopes["end_ns"] >= timeline.scopes["start_ns"]).all()


@pytest.mark.parametrize("sampled", ["", "1,3", "3, 1"])
def test_what_proton_itself_packs_is_read(tmp_path: Path, sampled: str) -> None:
    torch = pytest.importorskip("torch")
    instrumentation = pytest.importorskip("triton.profiler.hooks.instrumentation")
    recorded = (1, 3) if sampled else (0, 1, 2, 3)
    words = buffer_words(ctas(3, 4), slots=8, recorded=recorded)
    metadata = tmp_path / "kernel.json"
    metadata.write_text(
        json.dumps({"target": {"backend": "cuda"}, "profile_scratch_size": words.shape[1] * 4, "num_warps": 4})
    )
    hook = object.__new__(instrumentation.InstrumentationHook)
    strategy = f"default:sampling_strategy=selective:sampling_options={sampled}" if sampled else "default"
    hook.mode = instrumentation._interpret_mode(strategy)
    hook.buffer = torch.from_numpy(words.reshape(-1).view("u1"))
    hook.metadata_path = {"function": str(metadata)}
    hook._populate_host_buffer("function")
    path = tmp_path / "packed.bin"
    instrumentation.InstrumentationHook.host_buffer.numpy().tofile(path)

    assert path.read_bytes()[-words.nbytes :] == words.tobytes()
    launch = launch_of(path)
    assert launch.kernel.mode.recorded_warps(4) == recorded
    assert decode_launch(launch).scope_count == 3 * 2 * len(recorded)
