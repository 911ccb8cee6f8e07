"""A kernel that copies to a peer and multiplies, whose addresses are known or not, and limits by peers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from flag_launches import FLAG, LENGTH_NS, SET, WAIT, Use, launch
from programs.child import REPO
from replacing import replace
from snapshots import check

from kprof_inject.analysis.advice import advice_on
from kprof_inject.analysis.communication import Communication, communication_of
from kprof_inject.analysis.interpreter.executions import evaluated_kernel
from kprof_inject.analysis.launch import LaunchAnalysis, in_one_report
from kprof_inject.analysis.roofs.limits import Limit
from kprof_inject.analysis.roofs.memory_waits import MEMORY_WAITS
from kprof_inject.analysis.roofs.peer_limits import PEER, peer_limit
from kprof_inject.capture.link_traffic import DeviceTraffic, LinkTrafficRecord, write_link_traffic
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.schema import AddressTableRecord, FlagMemoryRecord, PeerMemoryRecord
from kprof_inject.report.communication_notes import exchange_notes, exchanges
from kprof_inject.timeline.peer_waits import PeerWait, PeerWaits
from kprof_inject.timeline.timeline import Timeline, decode_launch

OWN, PEERS, TABLE, SIZE = 0x7F00_0000_0000, 0x7E00_0000_0000, 0x7F10_0000_0000, 1 << 21
CTAS, ELEMENTS = 4, 256

# The first line is number 1.
TTGIR = """#b = #ttg.blocked<{sizePerThread = [2], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", "ttg.threads-per-warp" = 32 : i32} {
  tt.func public @send(%own: !tt.ptr<f32>, %tables: !tt.ptr<i64>, %peer: i32, %size: i32) {
    %cta = tt.get_program_id x : i32
    %c256 = arith.constant 256 : i32
    %begin = arith.muli %cta, %c256 : i32
    %lanes = tt.make_range {end = 256 : i32, start = 0 : i32} : tensor<256xi32, #b>
    %from = tt.splat %begin : i32 -> tensor<256xi32, #b>
    %place = arith.addi %from, %lanes : tensor<256xi32, #b>
    %all = tt.splat %size : i32 -> tensor<256xi32, #b>
    %mask = arith.cmpi slt, %place, %all : tensor<256xi32, #b>
    %owns = tt.splat %own : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>, #b>
    %reads = tt.addptr %owns, %place : tensor<256x!tt.ptr<f32>, #b>, tensor<256xi32, #b>
    %value = tt.load %reads, %mask : tensor<256x!tt.ptr<f32>, #b>
    %entry = tt.addptr %tables, %peer : !tt.ptr<i64>, i32
    %address = tt.load %entry : !tt.ptr<i64>
    %there = tt.int_to_ptr %address : i64 -> !tt.ptr<f32>
    %theirs = tt.splat %there : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>, #b>
    %writes = tt.addptr %theirs, %place : tensor<256x!tt.ptr<f32>, #b>, tensor<256xi32, #b>
    tt.store %writes, %value, %mask : tensor<256x!tt.ptr<f32>, #b>
    tt.return
  }
}
"""  # noqa: E501
LINES = {"func": (3, 22), "load": (14, 14), "store": (20, 20)}
LOAD, STORE = 1, 5


def sends(folder: Path, *, peer: int = 1, tables: tuple[AddressTableRecord, ...] | None = None) -> Timeline:
    """Each CTA loads for 10 µs, then stores for 20 µs; of the scopes of ``flag_launches``, some are these."""
    uses = [
        use
        for cta in range(CTAS)
        for use in (Use(cta, 0, 0, 40_000), Use(cta, LOAD, 5_000, 15_000), Use(cta, STORE, 16_000, 36_000))
    ]
    timeline = launch(folder, uses).timeline
    lines = [LINES["func"], LINES["load"], None, None, None, LINES["store"]]
    kinds = ["func", "op", "signal", "signal", "spin", "op"]
    scopes = tuple(
        replace(scope, lines=own, kind=kind, flag=None if kind == "op" else scope.flag)
        for scope, own, kind in zip(timeline.table.scopes, lines, kinds, strict=True)
    )
    table = replace(timeline.table, scopes=scopes)
    kernel = replace(timeline.launch.kernel, scopes=table)
    (kernel.folder / "kernel.ttgir").write_text(TTGIR)
    origin = replace(
        timeline.launch.origin,
        peer_memory=(PeerMemoryRecord(PEERS, SIZE, 1),),
        address_tables=(AddressTableRecord(TABLE, (OWN, PEERS + 4096)),) if tables is None else tables,
    )
    changed: dict[str, Any] = {"grid": (CTAS, 1, 1), "arguments": (OWN, TABLE, peer, 1000)}
    made = replace(timeline.launch, kernel=kernel, origin=origin, **changed)
    return replace(timeline, table=table, launch=made)


def exchanged(timeline: Timeline) -> Communication | None:
    return communication_of(timeline, evaluated_kernel(timeline.launch), PeerWaits([]))


def test_bytes_in_a_peers_memory_count(tmp_path: Path) -> None:
    found = exchanged(sends(tmp_path))
    assert found is not None
    # The mask leaves 24 of the elements of the last CTA out.
    assert (found.read_bytes, found.written_bytes, found.unknown) == (0, 4 * 1000, 0)
    assert found.overlap is not None
    assert (found.overlap.transferring_ns, found.overlap.computing_ns, found.overlap.both_ns) == (20_000, 10_000, 0)


def test_the_own_entry_of_a_table_is_no_peer(tmp_path: Path) -> None:
    assert exchanged(sends(tmp_path, peer=0)) is None


@pytest.mark.parametrize("tables", [(), (AddressTableRecord(TABLE, (OWN,)),)], ids=["none", "too short"])
def test_of_an_unknown_entry_of_a_table_nothing_is_said(tmp_path: Path, tables: tuple[AddressTableRecord, ...]) -> None:
    found = exchanged(sends(tmp_path, tables=tables))
    assert found is not None
    assert (found.written_bytes, found.unknown, found.overlap) == (0, 1, None)


def test_a_pointer_to_a_peers_memory_may_be_that_of_an_unknown_address(tmp_path: Path) -> None:
    """The address is loaded from a peer's memory, and is unknown."""
    timeline = sends(tmp_path, tables=())
    text = TTGIR.replace(
        "%there = tt.int_to_ptr %address : i64 -> !tt.ptr<f32>", "%there = tt.addptr %own, %address : !tt.ptr<f32>, i64"
    )
    (timeline.launch.kernel.folder / "kernel.ttgir").write_text(text)
    assert exchanged(timeline) is None
    given = replace(timeline.launch, arguments=(PEERS, TABLE, 1, 1000))
    found = exchanged(replace(timeline, launch=given))
    assert found is not None
    assert (found.unknown, found.overlap) == (1, None)


def test_a_table_may_be_at_an_integer(tmp_path: Path) -> None:
    """As torch's symmetric memory passes it."""
    timeline = sends(tmp_path)
    text = TTGIR.replace("%tables: !tt.ptr<i64>", "%table_at: i64").replace(
        "    %entry =", "    %tables = tt.int_to_ptr %table_at : i64 -> !tt.ptr<i64>\n    %entry ="
    )
    (timeline.launch.kernel.folder / "kernel.ttgir").write_text(text)
    found = exchanged(timeline)
    assert found is not None
    assert (found.written_bytes, found.unknown) == (4 * 1000, 0)


ASSEMBLY = (
    '%value = tt.elementwise_inline_asm "ASM" {constraints = "=r,l", packed_element = 1 : i32, pure = false}'
    " %reads : tensor<256x!tt.ptr<f32>, #b> -> tensor<256xf32, #b>"
)
LOADS = "%value = tt.load %reads, %mask : tensor<256x!tt.ptr<f32>, #b>"


@pytest.mark.parametrize(
    ("assembly", "unknown", "transferring_ns"),
    [
        ("multimem.ld_reduce.relaxed.sys.global.add.f32 $0, [$1];", 0, 30_000),
        ("ld.relaxed.sys.global.f32 $0, [$1];", 1, None),
        ("mov.u64 $0, %globaltimer;", 0, 20_000),
    ],
)
def test_assembly_reaches_all_gpus_or_any_memory(
    tmp_path: Path, assembly: str, unknown: int, transferring_ns: int | None
) -> None:
    timeline = sends(tmp_path)
    text = TTGIR.replace(LOADS, ASSEMBLY.replace("ASM", assembly))
    assert text != TTGIR
    (timeline.launch.kernel.folder / "kernel.ttgir").write_text(text)
    found = exchanged(timeline)
    assert found is not None
    assert found.unknown == unknown
    assert (found.overlap and found.overlap.transferring_ns) == transferring_ns


def test_memory_of_the_own_device_is_no_peers(tmp_path: Path) -> None:
    timeline = sends(tmp_path)
    assert exchanged(replace(timeline, launch=replace(timeline.launch, device=1))) is None


def test_memory_of_another_process_is_a_peers_without_a_link(tmp_path: Path) -> None:
    timeline = sends(tmp_path)
    origin = replace(timeline.launch.origin, peer_memory=(PeerMemoryRecord(PEERS, SIZE, 0, is_foreign=True),))
    found = exchanged(replace(timeline, launch=replace(timeline.launch, origin=origin)))
    assert found is not None
    assert (found.written_bytes, found.link_bytes) == (4 * 1000, 0)


def test_only_the_bytes_in_a_peers_memory_count(tmp_path: Path) -> None:
    """The last quarter of what is written is beyond the peer's allocation."""
    timeline = sends(tmp_path)
    origin = replace(timeline.launch.origin, peer_memory=(PeerMemoryRecord(PEERS, 4096 + 3 * 1024, 1),))
    found = exchanged(replace(timeline, launch=replace(timeline.launch, origin=origin)))
    assert found is not None
    assert found.written_bytes == found.link_bytes == 3 * 1024


def test_waits_that_ended_for_unknown_reasons_leave_the_overlap_unknown(tmp_path: Path) -> None:
    timeline = sends(tmp_path)

    class Waits:
        def __init__(self, unknown_ns: int) -> None:
            self.waits = (PeerWait(4, 100_000, unknown_ns, ()),)

        def of(self, *_: object) -> tuple[PeerWait, ...]:
            return self.waits

    executed = evaluated_kernel(timeline.launch)
    little = communication_of(timeline, executed, Waits(100_000))  # type: ignore[arg-type]
    much = communication_of(timeline, executed, Waits(1_000_000))  # type: ignore[arg-type]
    assert little is not None
    assert much is not None
    assert little.overlap is not None
    assert much.overlap is None
    assert much.unknown_waits == pytest.approx(1 / CTAS)


def test_a_later_table_counts_where_two_overlap(tmp_path: Path) -> None:
    tables = (AddressTableRecord(TABLE, (OWN, OWN)), AddressTableRecord(TABLE + 8, (PEERS,)))
    found = exchanged(sends(tmp_path, tables=tables))
    assert found is not None
    assert found.written_bytes == 4 * 1000


def test_the_note_says_what_is_moved(tmp_path: Path) -> None:
    (note,) = exchange_notes(exchanges([LaunchAnalysis.of(sends(tmp_path))]))
    assert "communicates 20.0 µs" in note
    assert "computes in 0.0 % of that, with 0.0 of 4 CTAs on average" in note
    assert note.endswith("writes 4.0 kB of peers' memory (0.0 GB/s, computed)")


WAITS, SETS = Use(0, WAIT, 10_000, 600_000, 3), Use(1, SET, 598_000, 599_000, 3)


@pytest.mark.parametrize("far", [True, False], ids=["another rank", "another CTA"])
def test_a_peer_limits_those_that_it_lets_wait(tmp_path: Path, far: bool) -> None:
    own = [Use(0, 0, 0, LENGTH_NS), WAITS]
    there = [Use(0, 0, 0, LENGTH_NS)]
    (there if far else own).append(SETS._replace(address=PEERS + FLAG - OWN) if far else SETS)
    placed = [
        launch(tmp_path / "a", own, "a", memory=[FlagMemoryRecord(OWN, SIZE, 0, is_exported=True)]),
        launch(tmp_path / "b", there, "b", memory=[FlagMemoryRecord(PEERS, SIZE, 0)]),
    ]
    timelines = [
        replace(one.timeline, launch=replace(one.timeline.launch, origin=replace(one.timeline.launch.origin, pid=pid)))
        for pid, one in enumerate(placed)
    ]
    first, _ = in_one_report([LaunchAnalysis.of(timeline) for timeline in timelines])
    (wait,) = first.peer_waits
    assert wait.waited_ns == 590_000
    assert wait.by_peers_ns == (590_000 if far else 0)
    assert (first.limit.name == PEER) is far
    assert advice_on(first)[0].text.startswith("have process 1, device 0 set flags earlier") is far


def test_waits_for_a_peer_are_named(tmp_path: Path) -> None:
    summary = LaunchAnalysis.of(launch(tmp_path, [Use(0, 0, 0, LENGTH_NS), WAITS]).timeline).summary
    found = Limit(MEMORY_WAITS, (), "waits for memory to change", {})

    def limit(*by_place_ns: tuple[str, int]) -> Limit:
        return peer_limit(found, summary, "H200", [PeerWait(WAIT, 590_000, 0, by_place_ns)], None)

    assert limit(("rank 1", 500_000)).name == PEER
    assert limit(("rank 1", 500_000)).text.endswith("is in wait, of which rank 1 ends 84.7 %")
    assert limit(("rank 1", 300_000), ("rank 2", 200_000)).text.endswith("rank 1 ends 50.8 %, rank 2 ends 33.9 %")
    assert limit(("rank 1", 100_000)) == found


@pytest.mark.parametrize(
    ("link_bytes", "device", "name"),
    [
        (9 << 20, "NVIDIA H200", "NVLink 72 %"),
        (1 << 20, "NVIDIA H200", "latency"),
        (9 << 20, "NVIDIA B200", "latency"),
        (9 << 20, "NVIDIA H100 PCIe", "latency"),
        (9 << 20, "", "latency"),
    ],
)
def test_nvlink_limits_what_needs_most_of_its_peak(tmp_path: Path, link_bytes: int, device: str, name: str) -> None:
    summary = LaunchAnalysis.of(launch(tmp_path, [Use(0, 0, 0, LENGTH_NS)]).timeline).summary
    summary = replace(summary, duration_ns=29_127)
    found = Limit("latency", (), "latency", {"tensor cores": 0.1})
    communication = Communication(1 << 30, 1 << 30, link_bytes, 0, 0.0, None)
    assert peer_limit(found, summary, device, (), communication).name == name


CAPTURE = REPO / "tests/captures/exchange"
BLOCKS, SENDERS, TILES = 2, 2, 8
MOVED_BYTES = 2 * BLOCKS * 128 * 256
"""Half precision numbers of each rank, all of which the other needs."""


def test_a_real_exchange_moves_what_it_must() -> None:
    """A launch of ``examples/gather_matmul.py --blocks 2 --ctas 8 --senders 2 --columns 256 --k 256`` on two H200."""
    launches = read_capture(CAPTURE).launches
    reports = LaunchAnalysis.all_of(decode_launch(one) for one in launches)
    for report in reports:
        found = report.communication
        assert found is not None
        assert found.overlap is not None
        # Each block ends with a flag of 4 bytes.
        assert found.written_bytes == found.link_bytes == MOVED_BYTES + 4 * BLOCKS
        assert (found.unknown, found.overlap.ctas) == (0, TILES)
        assert found.overlap.both_ns <= found.overlap.communicating_ns <= report.duration_ns
        # A tile takes some 5 µs.
        assert found.overlap.without_ns == pytest.approx(7_000, rel=0.1)
    assert {report.launch.place.rank: report.limit.name == PEER for report in reports} == {0: True, 1: False}
    check("report/exchanges", "\n".join(exchange_notes(exchanges(reports))), "a matmul that gathers its rows")


def test_alone_a_rank_does_not_know_for_whom_it_waits() -> None:
    (own,) = (one for one in read_capture(CAPTURE).launches if one.place.rank == 0)
    report = LaunchAnalysis.of(decode_launch(own))
    found = report.communication
    assert found is not None
    assert found.overlap is None
    assert found.unknown_waits > 0.5
    (note,) = exchange_notes(exchanges([report]))
    assert "of the CTAs' time is not known" in note


def test_lost_lines_on_peers_leave_the_exchange_unknown(tmp_path: Path) -> None:
    folder = shutil.copytree(CAPTURE, tmp_path / "capture")
    (peers,) = folder.glob("rank-0/peer_memory.jsonl")
    peers.write_bytes(peers.read_bytes().replace(b"2097152", b"2097153", 1))
    reports = {one.place.rank: LaunchAnalysis.of(decode_launch(one)) for one in read_capture(folder).launches}
    assert reports[0].communication is None
    assert reports[1].communication is not None


def test_counters_of_the_links_are_those_of_the_launchs_time(tmp_path: Path) -> None:
    """In each microsecond, each GPU sends 100 bytes, and receives 300."""
    folder = shutil.copytree(CAPTURE, tmp_path / "capture")
    launches = read_capture(folder).launches
    called_ns = min(one.host_ns for one in launches)
    around_ns = called_ns - 10_000_000, called_ns + 30_000_000
    begins_ns = tuple(range(*around_ns, 1_000))
    traffic = [
        DeviceTraffic(
            device=one.origin.device_uuid(one.device),
            from_ns=around_ns[0],
            to_ns=around_ns[1],
            begins_ns=begins_ns,
            sent_bytes=(100,) * len(begins_ns),
            received_bytes=(300,) * len(begins_ns),
        )
        for one in launches
    ]
    process = launches[0].process
    assert process is not None
    write_link_traffic(folder, LinkTrafficRecord(interval_ns=1_000, devices=tuple(traffic)), process.run)
    found = exchanges(LaunchAnalysis.all_of(decode_launch(one) for one in launches))
    assert len(found) == 2
    for one in found:
        assert one.counted is not None
        assert one.counted.sent_bytes == pytest.approx(one.duration_ns / 10, rel=0.01)
        assert one.counted.received_bytes == pytest.approx(3 * one.duration_ns / 10, rel=0.01)
        assert one.counted.bytes_per_s == pytest.approx(300e6, rel=0.01)
    notes = list(exchange_notes(found))
    assert all("received over NVLink (0.3 GB/s, by counters, which miss some)" in note for note in notes)
