"""What a scene promises to those who write it, whatever it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import drawn
import numpy as np
import pytest
from drawn import DRAWN
from traces import draw, parts_of

from kprof_inject.export import drawing as module
from kprof_inject.export.events import Counters, Events, Part, Picked, Process, TextColumn, Tracks
from kprof_inject.export.tracks import LAYOUT_NAMES
from kprof_inject.timeline.timeline import Timeline


@pytest.fixture(scope="module", params=list(DRAWN))
def timelines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Timeline]:
    return DRAWN[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module", params=LAYOUT_NAMES)
def parts(request: pytest.FixtureRequest, timelines: list[Timeline]) -> list[Part]:
    return parts_of(draw(timelines, request.param))


def all_events(parts: list[Part]) -> Iterator[Events]:
    return (part for part in parts if isinstance(part, Events))


def tids_of(parts: list[Part]) -> list[int]:
    own = [part.track for part in parts if isinstance(part, Process) and part.own]
    return own + [tid for part in threads_of(parts) for tid in part.ids.tolist()]


def threads_of(parts: list[Part]) -> list[Tracks]:
    return [part for part in parts if isinstance(part, Tracks) and part.names]


def groups_of(parts: list[Part]) -> set[int]:
    return {group for part in parts if isinstance(part, Tracks) and not part.names for group in part.ids.tolist()}


def names_of(threads: Tracks) -> list[str]:
    """The names, thread by thread."""
    return texts(threads.names, len(threads.ids))


def texts(column: TextColumn, count: int) -> list[str]:
    columns = []
    for part in column:
        match part:
            case str():
                columns.append([part] * count)
            case Picked():
                columns.append([part.texts[at] for at in part.index.tolist()])
            case _:
                columns.append([str(value) for value in part.tolist()])
    return ["".join(row) for row in zip(*columns, strict=True)]


def test_processes_are_numbered_in_their_order(parts: list[Part]) -> None:
    pids = [part.pid for part in parts if isinstance(part, Process)]
    assert pids == list(range(1, len(pids) + 1))


def test_no_thread_or_group_has_the_id_of_another_or_of_a_process(parts: list[Part]) -> None:
    tids = tids_of(parts) + list(groups_of(parts))
    assert len(set(tids)) == len(tids)
    assert min(tids) > sum(isinstance(part, Process) for part in parts)


def test_what_is_drawn_has_been_named_before(parts: list[Part]) -> None:
    processes: set[int] = set()
    threads: dict[int, int] = {}
    for part in parts:
        match part:
            case Process():
                processes.add(part.pid)
                if part.own:
                    threads[part.track] = part.pid
            case Tracks() if part.names:
                threads |= dict.fromkeys(part.ids.tolist(), part.pid)
            case Events():
                assert {threads[tid] for tid in part.tids.tolist()} == {part.pid}
        assert part.pid in processes


def test_tracks_stand_in_tracks_of_their_process_that_came_before(parts: list[Part]) -> None:
    process_of: dict[int, int] = {}
    used = set()
    for part in parts:
        match part:
            case Process():
                assert part.within is None or part.within.track in process_of
                process_of[part.track] = part.pid
            case Tracks():
                within = part.within.tolist()
                assert {process_of[track] for track in within} == {part.pid}
                used |= set(within)
                if not part.names:
                    process_of |= dict.fromkeys(part.ids.tolist(), part.pid)
    assert groups_of(parts) <= used


def test_what_stands_in_one_track_has_names_and_places_of_its_own(parts: list[Part]) -> None:
    named = []
    for part in parts:
        if isinstance(part, Tracks):
            within = part.within.tolist()
            kind = [bool(part.names)] * len(within)
            labels = texts(part.labels, len(within))
            named += list(zip(kind, within, part.positions.tolist(), labels, strict=True))
    assert len({(kind, within, position) for kind, within, position, _ in named}) == len(named)
    assert len({(kind, within, label) for kind, within, _, label in named}) == len(named)


def test_only_threads_with_something_on_them_are_named(parts: list[Part]) -> None:
    assert set(tids_of(parts)) == {tid for events in all_events(parts) for tid in events.tids.tolist()}


def test_threads_of_a_process_stand_at_places_of_their_own(parts: list[Part]) -> None:
    for pid in {part.pid for part in threads_of(parts)}:
        mine = [part for part in threads_of(parts) if part.pid == pid]
        positions = np.concatenate([part.positions for part in mine])
        names = [name for part in mine for name in names_of(part)]
        assert len(set(positions.tolist())) == len(set(names)) == len(names)


def test_columns_have_a_row_for_each_event(parts: list[Part]) -> None:
    for events in all_events(parts):
        arrows = [column for each in events.arrows for column in (each.ids, each.at_ns)]
        columns = [events.kind, events.start_ns, events.end_ns, events.group, events.start_order, events.end_order]
        shown = [arg.shown for arg in events.args if arg.shown is not None]
        lengths = {len(column) for column in (*columns, *arrows, *shown, *(arg.values for arg in events.args))}
        assert lengths == {len(events)}


def test_starts_and_ends_of_a_group_have_numbers_that_rise_with_time(parts: list[Part]) -> None:
    for events in all_events(parts):
        assert (np.diff(events.group) >= 0).all()
        assert len(set(zip(events.tids.tolist(), events.group.tolist(), strict=True))) == len(np.unique(events.tids))
        for group in np.unique(events.group):
            mine = events.group == group
            order = np.concatenate((events.start_order[mine], events.end_order[mine]))
            times = np.concatenate((events.start_ns[mine], events.end_ns[mine]))
            assert len(np.unique(order)) == len(order)
            assert (np.diff(times[np.argsort(order)]) >= 0).all()


def test_no_events_of_a_thread_cross(parts: list[Part]) -> None:
    for events in all_events(parts):
        for tid in np.unique(events.tids):
            ends = [np.inf]
            for row in np.flatnonzero(events.tids == tid).tolist():
                while events.start_order[row] > ends[-1]:
                    ends.pop()
                assert events.end_order[row] < ends[-1]
                ends.append(events.end_order[row])


def test_nothing_is_before_zero(parts: list[Part]) -> None:
    times = [part.start_ns for part in all_events(parts)] + [p.at_ns for p in parts if isinstance(p, Counters)]
    assert min(int(column.min()) for column in times) == 0


def test_every_layout_shows_the_same_but_on_other_threads(timelines: list[Timeline]) -> None:
    shown = []
    for layout in LAYOUT_NAMES:
        parts = parts_of(draw(timelines, layout))
        shown.append(
            sorted(
                (events.pid, events.kinds[kind].name, start_ns, end_ns)
                for events in all_events(parts)
                for kind, start_ns, end_ns in zip(events.kind, events.start_ns, events.end_ns, strict=True)
            )
        )
    assert shown[0] == shown[1] == shown[2]


def test_parts_can_be_asked_for_again(timelines: list[Timeline]) -> None:
    scene = draw(timelines)
    assert repr(parts_of(scene)) == repr(parts_of(scene))


def losses_of(parts: list[Part]) -> list[int]:
    losses = [events.start_ns.tolist() for events in all_events(parts) if events.kinds[0].category == "lost"]
    return [start_ns for part in losses for start_ns in part]


def test_in_how_many_parts_losses_come_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timelines = drawn.loops(tmp_path)
    whole = parts_of(draw(timelines))
    monkeypatch.setattr(module, "_CHUNK_WARPS", 1)
    cut = parts_of(draw(timelines))
    assert len(cut) > len(whole)
    assert sorted(tids_of(cut)) == sorted(tids_of(whole))
    assert losses_of(cut) == losses_of(whole)
