"""Events of Proton's language in its buffer: the difference from scopes, and how Triton's compiler packs them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from buffers import Cta, Entry, buffer_words, end, end_event, start, start_event
from proton_files import save_file
from triton_oracle import triton

from kprof_inject.analysis.summary import summarise
from kprof_inject.capture.buffer_layouts import EVENT_SHIFT, SCOPE_SHIFT
from kprof_inject.capture.proton_buffer import names_of_ttgir, read_proton_buffer
from kprof_inject.report.launch_notes import launch_notes
from kprof_inject.timeline.choice import Choice, NumberSet
from kprof_inject.timeline.scope_statistics import scope_statistics
from kprof_inject.timeline.timeline import Timeline, decode_launch

BEGIN_NS = 1_790_000_000_000_000_000
CYCLES = 0x5A5_12345678
WORK, COPY, NEXT_COPY, OTHER = range(4)
NAMES = {WORK: "work", COPY: "copy", NEXT_COPY: "copy", OTHER: "other"}


def producer(at: int) -> list[Entry]:
    return [
        start(WORK, at),
        *(start_event(COPY + turn % 2, at + 10 + 40 * turn) for turn in range(4)),
        end(WORK, at + 200),
    ]


def consumer(at: int) -> list[Entry]:
    return [
        start(WORK, at + 5),
        start_event(OTHER, at + 6),
        *(end_event(COPY + turn % 2, at + 30 + 60 * turn) for turn in range(4)),
        end(WORK, at + 215),
        end_event(OTHER, at + 220),
    ]


def decoded(tmp_path: Path, ctas: list[Cta], slots: int = 8, names: dict[int, str] | None = None) -> Timeline:
    path = save_file(tmp_path, buffer_words(ctas, slots), len(ctas[0].warps))
    return decode_launch(read_proton_buffer(path, NAMES if names is None else names).launches[0])


def ctas(count: int = 3) -> list[Cta]:
    return [
        Cta(
            [producer(CYCLES + 9 * number), consumer(CYCLES + 9 * number)],
            sm=number,
            init_ns=BEGIN_NS,
            pre_final_ns=BEGIN_NS + 1000,
            post_final_ns=BEGIN_NS + 1100,
        )
        for number in range(count)
    ]


def events_of(timeline: Timeline) -> list[tuple[int, ...]]:
    """CTA, scope, warps, and cycles of each event."""
    names = ("cta", "scope", "start_warp", "end_warp", "start_cycles", "end_cycles")
    return [tuple(row[name].item() for name in names) for block in timeline.events() for row in block]


def test_each_id_of_an_event_is_an_event_of_its_own(tmp_path: Path) -> None:
    timeline = decoded(tmp_path, ctas())
    assert [(scope.name, scope.kind, scope.record) for scope in timeline.table.scopes] == [
        ("work", "scope", "work"),
        ("copy", "event", "copy#0"),
        ("copy", "event", "copy#1"),
        ("other", "event", "other"),
    ]
    at = CYCLES + 9
    assert [event for event in events_of(timeline) if event[0] == 1] == [
        (1, COPY, 0, 1, at + 10, at + 30),
        (1, NEXT_COPY, 0, 1, at + 50, at + 90),
        (1, COPY, 0, 1, at + 90, at + 150),
        (1, NEXT_COPY, 0, 1, at + 130, at + 210),
        (1, OTHER, 1, 1, at + 6, at + 220),
    ]


def test_events_are_no_scopes(tmp_path: Path) -> None:
    timeline = decoded(tmp_path, ctas())
    assert timeline.scopes["scope"].tolist() == [WORK] * 6
    assert timeline.scope_count == 6
    assert not timeline.scopes["flags"].any() and not timeline.scopes["depth"].any()
    assert timeline.lanes.tolist() == [0] * 4
    assert not (timeline.open_starts.any() or timeline.stray_ends.any() or timeline.records_damaged)
    assert timeline.incomplete.size == 0


def test_times_of_an_event_are_on_the_launchs_clock(tmp_path: Path) -> None:
    timeline = decoded(tmp_path, ctas(1))
    (events,) = timeline.events()
    (scopes,) = timeline.blocks()
    assert (events["start_ns"] < events["end_ns"]).all()
    inside = events[events["scope"] != OTHER]
    assert (inside["start_ns"] > scopes["start_ns"].min()).all() and (inside["end_ns"] < scopes["end_ns"].max()).all()


def test_records_that_a_ring_lost_leave_events_open(tmp_path: Path) -> None:
    timeline = decoded(tmp_path, ctas(2), slots=6)
    assert timeline.records_lost == 4
    assert events_of(timeline) == []
    assert timeline.open_starts.tolist() == [0, 4, 4, 0]
    assert timeline.stray_ends.tolist() == [2, 4, 4, 2]
    assert timeline.incomplete["stray_ends"].sum() + timeline.incomplete["open_starts"].sum() == 20


def test_a_choice_of_warps_keeps_the_events_of_either_end(tmp_path: Path) -> None:
    timeline = decoded(tmp_path, ctas())
    producers = timeline.chosen(Choice(warps=NumberSet.parse("0", "--warp")))
    assert {event[1] for event in events_of(producers)} == {COPY, NEXT_COPY}
    others = timeline.chosen(Choice(scopes=("other",)))
    assert {event[1] for event in events_of(others)} == {OTHER}
    assert len(events_of(timeline.chosen(Choice(ctas=NumberSet.parse("2", "--cta"))))) == 5


def test_an_event_without_a_name_is_called_by_its_id(tmp_path: Path) -> None:
    timeline = decoded(tmp_path, ctas(1), names={})
    assert [(scope.name, scope.kind) for scope in timeline.table.scopes] == [
        ("scope 0", "scope"),
        *((f"scope {number}", "event") for number in (1, 2, 3)),
    ]


def test_a_scope_and_an_event_of_one_name_stay_apart(tmp_path: Path) -> None:
    timeline = decoded(tmp_path, ctas(1), names={WORK: "x", COPY: "x"})
    assert [(scope.name, scope.kind, scope.record) for scope in timeline.table.scopes][:2] == [
        ("x", "scope", "x"),
        ("x", "event", "x#0"),
    ]
    assert timeline.scope_count == 2


def test_events_do_not_hide_that_stores_were_moved(tmp_path: Path) -> None:
    """A start of a scope is right before its end, and events are where they were (Triton 3.9)."""
    written = [
        entry
        for at in range(CYCLES, CYCLES + 400, 100)
        for entry in (
            *(start_event(COPY, at + 10), start(OTHER, at + 40), end(OTHER, at + 50), end_event(COPY, at + 60)),
            *(start(WORK, at + 20), end(WORK, at + 80)),
        )
    ]
    one = Cta([written], init_ns=BEGIN_NS, pre_final_ns=BEGIN_NS + 1000, post_final_ns=BEGIN_NS + 1100)
    timeline = decoded(tmp_path, [one], slots=32)
    assert timeline.launch.kernel.mode.sched_stores
    assert timeline.records_damaged == 0
    assert sorted(timeline.scopes["scope"].tolist()) == [WORK] * 4 + [OTHER] * 4
    assert [event[4:] for event in events_of(timeline)] == [
        (at + 10, at + 60) for at in range(CYCLES, CYCLES + 400, 100)
    ]


def test_events_have_durations_in_the_table_and_no_share_of_the_warps_time(tmp_path: Path) -> None:
    summary = summarise(decoded(tmp_path, ctas()))
    work, copy, _, other = summary.scopes
    assert (copy.kind, copy.count, copy.p50_cycles, copy.mean_cycles) == ("event", 6, 40.0, 40.0)
    assert (other.count, other.p50_cycles) == (3, 214.0)
    assert copy.min_ns is not None and copy.max_ns is not None and copy.min_ns < copy.max_ns
    assert (copy.total_ns, copy.self_ns, copy.share, copy.warp_spread) == (None, None, None, None)
    assert (work.count, work.crossing, work.self_ns) == (6, 0, work.total_ns)
    assert summary.warps_in_ctas(copy) == 3
    scopes = scope_statistics(decoded(tmp_path, ctas()))
    assert [scope.count for scope in scopes] == [scope.count for scope in summary.scopes] == [6, 6, 6, 3]


def test_unmatched_events_are_reported(tmp_path: Path) -> None:
    summary = summarise(decoded(tmp_path, ctas(2), slots=6))
    assert [scope.count for scope in summary.scopes][1:] == [0, 0, 0]
    assert [scope.without_partner for scope in summary.scopes] == [2, 8, 8, 2]
    assert summary.stray_ends is not None and summary.stray_ends.records == 12
    (note,) = (note for note in launch_notes(summary) if note.startswith("  of events"))
    assert note.startswith("  of events: 18; in a CTA that lacks records none is paired")
    assert not any("events" in note for note in launch_notes(summarise(decoded(tmp_path, ctas()))))


MODULE = """\
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", \
"ttg.threads-per-warp" = 32 : i32} {
  tt.func public @kernel(%p: !tt.ptr<i32>, %n: i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %other = proton.allocate_event "other" : i32
    proton.record start "body"
    %copy = proton.allocate_event "copy" : i32
    scf.for %i = %c0 to %n step %c1 : i32 {
      proton.event start %copy : i32
      tt.store %p, %i : !tt.ptr<i32>
      proton.event end %copy : i32
    }
    proton.event start %other : i32
    proton.record end "body"
    proton.event end %other : i32
    tt.return
  }
}
"""
# The constant that the upper 11 bits of the clock are joined with: ``or.b32 %r1, %r2, 8388608``.
FIRST_WORD = re.compile(r"or\.b32\s+%r\d+, %r\d+, (-?\d{6,});")


@pytest.mark.triton
@pytest.mark.skipif(triton.__version__ < "3.9", reason="earlier ones have no events")
def test_events_are_packed_and_numbered_as_triton_does(tmp_path: Path) -> None:
    from triton.backends.compiler import GPUTarget

    from kprof_inject.capture.mode import Mode
    from kprof_inject.runtime.compiling.instrumentation import lower, scope_names

    target: Any = GPUTarget("cuda", 90, 32)
    path = tmp_path / "kernel.ttgir"
    path.write_text(MODULE)
    ids = scope_names(str(path), target)
    assert ids == names_of_ttgir(MODULE, "kernel.ttgir") == {0: "other", 1: "body", 2: "copy"}
    number = {name: scope_id for scope_id, name in ids.items()}
    ptx = lower(MODULE, target, {"num_warps": 4}, Mode(buffer="global")).assembly
    words = [int(word) & 0xFFFFFFFF for word in FIRST_WORD.findall(ptx)]
    body, event, is_end = number["body"] << SCOPE_SHIFT, 1 << EVENT_SHIFT, 1 << 31
    copy, other = (number[name] << SCOPE_SHIFT | event for name in ("copy", "other"))
    assert words == [body, copy, copy | is_end, other, body | is_end, other | is_end]
