"""A launch decoded from end to end: a capture on disk in, columns out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from buffers import (
    Cta,
    Entry,
    Scope,
    buffer_words,
    end,
    kernel_json,
    save_launch,
    save_launches,
    start,
    with_moved_stores,
)
from replacing import replace

from kprof_inject.capture.mode import RecordCost
from kprof_inject.errors import KprofError
from kprof_inject.timeline.columns import SCOPE_COLUMNS, ScopeFlag
from kprof_inject.timeline.timeline import Timeline, decode_launch
from kprof_inject.timeline.waves import waves_of

SCOPES = [
    Scope("kernel", "func", -1, ("k.py", 3)),
    Scope("loop[0]", "loop", 0, ("k.py", 5)),
    Scope("iter[0]", "iter", 1, ("k.py", 5)),
]
FUNC, LOOP, ITER = 0, 1, 2

# A clock of 2 GHz: a record's cycle is twice its nanosecond, less what its SM's counter is ahead.
BEGIN_NS = 1_764_000_000_000_000_000
AHEAD_CYCLES = {3: 5_000_000, 9: 1 << 42}


def cta(sm: int, begin_ns: int, *warps: list[tuple[int, bool, int]]) -> Cta:
    """A CTA of 10 µs whose records are given by nanoseconds since its begin."""
    return Cta(
        [
            [Entry(scope, is_end, AHEAD_CYCLES[sm] + 2 * (begin_ns + ns)) for scope, is_end, ns in warp]
            for warp in warps
        ],
        sm,
        BEGIN_NS + begin_ns,
        BEGIN_NS + begin_ns + 10_000,
        BEGIN_NS + begin_ns + 10_500,
    )


LOOPING = [
    *[(FUNC, False, 30), (LOOP, False, 1000)],
    *[(ITER, False, 1100), (ITER, True, 4000), (ITER, False, 4100), (ITER, True, 8000)],
    *[(LOOP, True, 8100), (FUNC, True, 9972)],
]
PLAIN = [(FUNC, False, 130), (FUNC, True, 9872)]
CTAS = [cta(9, 0, LOOPING, PLAIN), None, cta(3, 2000, PLAIN, LOOPING), cta(9, 14_000, PLAIN, PLAIN)]


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    return decode_launch(save_launch(tmp_path, SCOPES, CTAS, slots=8))


def test_every_scope_that_ran_is_a_row_in_order_of_cta_warp_and_start(timeline: Timeline) -> None:
    looping = [
        (FUNC, 0, -1, 60, 19_944),
        (LOOP, 1, -1, 2000, 16_200),
        (ITER, 2, 0, 2200, 8000),
        (ITER, 2, 1, 8200, 16_000),
    ]
    plain = [(FUNC, 0, -1, 260, 19_744)]
    expected = [
        (cta, sm, warp, *rest, first_cycles + start_cycles, first_cycles + end_cycles)
        for cta, sm, first_cycles, warps in [
            (0, 9, AHEAD_CYCLES[9], [looping, plain]),
            (2, 3, AHEAD_CYCLES[3] + 4000, [plain, looping]),
            (3, 9, AHEAD_CYCLES[9] + 28_000, [plain, plain]),
        ]
        for warp, rows in enumerate(warps)
        for *rest, start_cycles, end_cycles in rows
    ]
    columns = ["cta", "sm", "warp", "scope", "depth", "iteration", "start_cycles", "end_cycles"]
    assert timeline.scopes[columns].tolist() == expected


def test_nanoseconds_are_of_the_globaltimer(timeline: Timeline) -> None:
    scopes, clock = timeline.scopes, timeline.clock
    for edge in ("start", "end"):
        assert np.array_equal(scopes[f"{edge}_ns"], clock.to_ns(scopes[f"{edge}_cycles"], scopes["sm"]))
        ahead = np.array([AHEAD_CYCLES[sm] for sm in scopes["sm"].tolist()])
        truth_ns = BEGIN_NS + (scopes[f"{edge}_cycles"] - ahead) // 2
        # The plain scope of a first warp begins 100 ns later than the fit expects of a scope around the function.
        assert np.abs(scopes[f"{edge}_ns"] - truth_ns).max() <= 110
    assert clock.clock_hz == pytest.approx(2e9, rel=0.02)


def test_ctas_are_those_that_ran(timeline: Timeline) -> None:
    assert timeline.ctas.tolist() == [
        (0, 9, BEGIN_NS, BEGIN_NS + 10_000, BEGIN_NS + 10_500),
        (2, 3, BEGIN_NS + 2000, BEGIN_NS + 12_000, BEGIN_NS + 12_500),
        (3, 9, BEGIN_NS + 14_000, BEGIN_NS + 24_000, BEGIN_NS + 24_500),
    ]
    assert (timeline.ctas_never_ran, timeline.ctas_damaged) == (1, 0)


def test_warps_that_did_not_record_count_for_nothing(tmp_path: Path) -> None:
    ctas = [cta(3, 0, PLAIN, LOOPING, PLAIN, LOOPING), cta(9, 0, LOOPING, PLAIN, PLAIN, LOOPING)]
    timeline = decode_launch(save_launch(tmp_path, SCOPES, ctas, slots=4, mode={"warps": [1, 3]}))

    assert timeline.warp_time_ns == 2 * 2 * 10_000
    assert (timeline.records_written, timeline.records_lost) == (26, 12)
    lost = timeline.incomplete[["cta", "warp", "records_lost"]]
    assert lost.tolist() == [(0, 1, 4), (0, 3, 4), (1, 3, 4)]
    functions = timeline.scopes[timeline.scopes["scope"] == FUNC]
    assert functions[["cta", "warp"]].tolist() == [(1, 1)]
    iterations = timeline.scopes[timeline.scopes["scope"] == ITER]
    assert iterations[["cta", "warp"]].tolist() == [(0, 1), (0, 3), (1, 3)]


def test_without_warp_0_the_times_are_still_those_of_the_globaltimer(tmp_path: Path) -> None:
    # A warp that records nothing goes on for a microsecond after the others.
    early = [(FUNC, False, 30), (FUNC, True, 8972)]
    ctas = [cta(sm, 10_000 * turn, PLAIN, early) for turn in range(20) for sm in (3, 9)]
    scopes = decode_launch(save_launch(tmp_path, SCOPES, ctas, slots=4, mode={"warps": [1]})).scopes

    assert scopes["warp"].tolist() == [1] * 40
    for edge, ns in (("start", 30), ("end", 8972)):
        error_ns = scopes[f"{edge}_ns"] - (BEGIN_NS + 10_000 * (scopes["cta"].astype(np.int64) // 2) + ns)
        # After the last CTA of an SM none begins that would tell how late it truly was.
        assert np.abs(error_ns[:-2]).max() <= 64
        assert np.abs(error_ns).max() <= 400


def test_a_launch_without_loss_counts_its_records(timeline: Timeline) -> None:
    assert (timeline.records_written, timeline.records_lost, timeline.records_damaged) == (24, 0, 0)
    assert timeline.scope_count == len(timeline.scopes) == 12
    assert timeline.open_starts.tolist() == timeline.stray_ends.tolist() == [0, 0, 0]
    assert timeline.incomplete.size == 0


def test_scopes_are_decoded_anew_each_time_they_are_asked_for(timeline: Timeline) -> None:
    first, second = (np.concatenate(list(timeline.blocks())) for _ in range(2))
    assert first.tolist() == second.tolist() == timeline.scopes.tolist()


def test_blocks_are_bounded_and_hold_all_of_each_cta(tmp_path: Path) -> None:
    words = np.repeat(buffer_words([CTAS[2]], slots=8), 20_000, axis=0)
    words[:, 1] = range(20_000)
    (launch,) = save_launches(tmp_path, kernel_json(SCOPES, words, 2), [words])
    timeline = decode_launch(launch)
    blocks = list(timeline.blocks())

    assert len(blocks) > 1
    assert max(map(len, blocks)) <= 100_000
    assert [cta for block in blocks for cta in np.unique(block["cta"]).tolist()] == list(range(20_000))
    assert sum(map(len, blocks)) == timeline.scope_count == 100_000
    ours = [name for name in SCOPE_COLUMNS.names or () if name != "cta"]
    assert {tuple(block[ours][:5].tolist()) for block in blocks} == {tuple(blocks[-1][ours][-5:].tolist())}


def test_lost_records_leave_a_window_from_the_begin_to_the_first_that_is_left(tmp_path: Path) -> None:
    timeline = decode_launch(save_launch(tmp_path, SCOPES, CTAS, slots=4))

    incomplete = timeline.incomplete
    warps = incomplete[["cta", "sm", "warp", "records_written", "records_lost", "open_starts", "stray_ends"]]
    assert warps.tolist() == [(0, 9, 0, 8, 4, 0, 2), (2, 3, 1, 8, 4, 0, 2)]
    assert incomplete["lost_start_ns"].tolist() == [BEGIN_NS, BEGIN_NS + 2000]
    second_iterations = timeline.scopes[timeline.scopes["scope"] == ITER]
    assert incomplete["lost_end_ns"].tolist() == second_iterations["start_ns"].tolist()
    assert second_iterations["iteration"].tolist() == [-1, -1]
    assert second_iterations[["start_record", "end_record"]].tolist() == [(4, 5), (4, 5)]
    assert (timeline.records_written, timeline.records_lost) == (24, 8)
    assert timeline.open_starts.tolist() == [0, 0, 0]
    assert timeline.stray_ends.tolist() == [2, 2, 0]


def test_where_stores_were_moved_the_window_reaches_to_the_end_of_the_oldest_scope_in_the_ring(tmp_path: Path) -> None:
    whole = cta(9, 0, LOOPING, PLAIN)
    ctas = [replace(whole, warps=[with_moved_stores(warp) for warp in whole.warps])]
    timeline = decode_launch(save_launch(tmp_path, SCOPES, ctas, slots=6, mode={"sched_stores": True}))

    scopes, incomplete = timeline.scopes, timeline.incomplete
    assert scopes[["warp", "scope", "depth", "iteration", "start_record"]].tolist() == [
        *[(0, FUNC, 0, -1, 2), (0, LOOP, 1, -1, 3), (0, ITER, 2, -1, 4)],
        (1, FUNC, 0, -1, 0),
    ]
    assert incomplete[["warp", "records_lost", "open_starts", "stray_ends"]].tolist() == [(0, 2, 0, 0)]
    assert incomplete["lost_end_ns"].tolist() == [scopes["end_ns"][2]]
    # The function began before what was lost, so that its begin is no guess.
    assert abs(scopes["start_ns"][0] - (BEGIN_NS + 30)) <= 32


def test_what_a_warp_lacks_is_counted(tmp_path: Path) -> None:
    first = [start(FUNC, 60), end(LOOP, 300), start(ITER, 500), start(77, 600), end(FUNC, 900)]
    second = [start(FUNC, 60), start(LOOP, 500), end(LOOP, 400), start(5, 600), end(FUNC, 900)]
    timeline = decode_launch(save_launch(tmp_path, SCOPES, [Cta([first, [], second])], slots=8))
    assert timeline.scopes[["warp", "scope"]].tolist() == [(0, FUNC)]
    assert timeline.open_starts.tolist() == [1, 0, 1]
    assert timeline.stray_ends.tolist() == [1, 1, 0]
    assert timeline.records_damaged == 4
    counts = ["cta", "warp", "records_written", "records_lost", "open_starts", "stray_ends", "records_damaged"]
    assert timeline.incomplete[counts].tolist() == [(0, 0, 5, 0, 1, 1, 1), (0, 2, 5, 0, 1, 1, 3)]
    assert timeline.incomplete["lost_start_ns"].tolist() == timeline.incomplete["lost_end_ns"].tolist()


def test_a_warp_without_a_sound_record_has_lost_the_whole_time_of_its_cta(tmp_path: Path) -> None:
    unknown = [start(77, 60 + number) for number in range(5)]
    timeline = decode_launch(save_launch(tmp_path, SCOPES, [Cta([unknown])], slots=4))
    (warp,) = timeline.incomplete
    assert (warp["records_lost"], warp["records_damaged"]) == (1, 4)
    assert (warp["lost_start_ns"], warp["lost_end_ns"]) == (1_000, 2_000)


CROSSING = [
    *[(FUNC, False, 30), (LOOP, False, 1000), (ITER, False, 2000), (LOOP, True, 3000), (ITER, True, 4000)],
    *[(LOOP, False, 5000), (LOOP, True, 5500), (FUNC, True, 9972)],
]


def test_scopes_that_cross_are_marked_and_get_lanes_of_their_own(tmp_path: Path) -> None:
    timeline = decode_launch(save_launch(tmp_path, SCOPES, [cta(3, 0, PLAIN, CROSSING)], slots=8))
    crosses = int(ScopeFlag.CROSSES)
    assert timeline.scopes[["warp", "scope", "depth", "flags"]].tolist() == [
        (0, FUNC, 0, 0),
        *[(1, FUNC, 0, 0), (1, LOOP, 1, crosses), (1, ITER, 1, crosses), (1, LOOP, 1, 0)],
    ]
    assert timeline.lanes.tolist() == [0, 0, 1]
    # What two scopes that cross share is once not the function's own.
    scopes = timeline.scopes
    function, loop, iteration, second = scopes[1:]
    taken = iteration["end_ns"] - loop["start_ns"] + second["duration_ns"]
    assert function["self_ns"] == function["duration_ns"] - taken
    assert (loop["self_ns"], iteration["self_ns"]) == (loop["duration_ns"], iteration["duration_ns"])


def test_without_a_cost_of_records_durations_are_as_recorded(timeline: Timeline) -> None:
    scopes = timeline.scopes
    assert timeline.launch.kernel.record_cost is None
    for unit in ("cycles", "ns"):
        assert (scopes[f"duration_{unit}"] == scopes[f"end_{unit}"] - scopes[f"start_{unit}"]).all()
    loop = scopes[scopes["scope"] == LOOP]
    in_loops = scopes["duration_ns"][scopes["scope"] == ITER].reshape(-1, 2).sum(axis=1)
    assert loop["self_ns"].tolist() == (loop["duration_ns"] - in_loops).tolist()
    assert timeline.lanes.tolist() == [0, 0, 0]
    assert not scopes["flags"].any()


def test_the_cost_of_records_is_taken_out_of_durations_alone(timeline: Timeline) -> None:
    kernel = replace(timeline.launch.kernel, record_cost=RecordCost(50.0, 50.0, 0.0))
    compensated = decode_launch(replace(timeline.launch, kernel=kernel)).scopes

    raw = timeline.scopes
    compensates = ("duration_cycles", "duration_ns", "self_ns")
    as_recorded = [name for name in SCOPE_COLUMNS.names or () if name not in compensates]
    assert compensated[as_recorded].tolist() == raw[as_recorded].tolist()
    between = raw["end_record"] - raw["start_record"]
    assert compensated["duration_cycles"].tolist() == (raw["duration_cycles"] - 50 * between).tolist()
    taken_ns = raw["duration_ns"] - compensated["duration_ns"]
    assert taken_ns == pytest.approx(50 * between * timeline.clock.rate_ns, rel=0.02, abs=1)


def test_ids_are_matched_by_record_name(tmp_path: Path) -> None:
    # Two loops of one name, and a function with two returns whose second end has an id of its own.
    scopes = [
        Scope("kernel"),
        Scope("loop", "loop", 0, record="loop#0"),
        Scope("loop", "loop", 0, record="loop#1"),
    ]
    ids = {0: "kernel", 1: "loop#1", 2: "kernel", 3: "loop#0", 4: "none of ours"}
    entries = [start(0, 60), start(3, 100), end(3, 200), start(1, 300), end(1, 400), start(4, 500), end(2, 900)]
    timeline = decode_launch(save_launch(tmp_path, scopes, [Cta([entries])], slots=8, scope_ids=ids))
    assert timeline.scopes[["scope", "start_cycles", "end_cycles"]].tolist() == [
        (0, 60, 900),
        (1, 100, 200),
        (2, 300, 400),
    ]
    assert timeline.records_damaged == 1


def test_a_damaged_header_is_counted_and_left_out(tmp_path: Path) -> None:
    words = buffer_words(CTAS, slots=8)
    words[2, 3] = 0x12345678
    (launch,) = save_launches(tmp_path, kernel_json(SCOPES, words, 2), [words])
    timeline = decode_launch(launch)
    assert timeline.ctas["cta"].tolist() == [0, 3]
    assert (timeline.ctas_never_ran, timeline.ctas_damaged) == (1, 1)


def test_a_launch_that_never_ran_is_an_empty_timeline(tmp_path: Path) -> None:
    timeline = decode_launch(save_launch(tmp_path, SCOPES, [None, None], slots=8))
    assert timeline.scopes.size == timeline.ctas.size == timeline.incomplete.size == 0
    assert (timeline.ctas_never_ran, timeline.records_written, timeline.warp_time_ns) == (2, 0, 0)
    assert timeline.open_starts.tolist() == [0, 0, 0]
    assert timeline.clock.clock_hz == pytest.approx(1.98e9)


def test_a_launch_without_records_has_the_times_of_its_ctas(tmp_path: Path) -> None:
    timeline = decode_launch(save_launch(tmp_path, SCOPES, [Cta([[], []], 0), Cta([[], []], 1)], slots=8))
    assert timeline.clock.source == "assumed"
    waves = waves_of(timeline)
    assert waves is not None
    assert (waves.ctas, waves.sms) == (2, 2)


def test_a_launch_of_a_kernel_without_scopes_has_its_ctas(tmp_path: Path) -> None:
    timeline = decode_launch(save_launch(tmp_path, [], [Cta([[], []]), Cta([[start(0, 5)], []])], slots=8))
    assert timeline.scopes.size == 0
    assert len(timeline.ctas) == 2
    assert timeline.records_damaged == 1


def test_a_truncated_buffer_is_an_error(tmp_path: Path) -> None:
    launch = save_launch(tmp_path, SCOPES, CTAS, slots=8)
    launch.path.write_bytes(launch.path.read_bytes()[:-4])
    with pytest.raises(KprofError, match=r"\.bin is damaged"):
        decode_launch(launch)


@pytest.mark.parametrize("count", [1, 3, 0x80000000, 0xFFFFFFFF])
def test_a_wrong_count_does_not_spoil_the_other_warps(tmp_path: Path, count: int) -> None:
    words = buffer_words(CTAS, slots=8)
    words[2, 11] = count
    (launch,) = save_launches(tmp_path, kernel_json(SCOPES, words, 2), [words])
    scopes = decode_launch(launch).scopes
    unspoilt = scopes[(scopes["cta"] != 2) | (scopes["warp"] != 1)]
    assert unspoilt["scope"].tolist() == [FUNC, LOOP, ITER, ITER, FUNC, FUNC, FUNC, FUNC]
    assert (scopes["end_ns"] >= scopes["start_ns"]).all()
