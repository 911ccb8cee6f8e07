"""Proton's tree of metrics, judged by the ``proton-viewer`` that comes with Triton."""

from __future__ import annotations

import io
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import drawn
import pytest
from buffers import Cta, Entry, Scope, buffer_words, end, kernel_json, save_launch, save_launches, start
from replacing import replace
from tabled import decode_ranks, rows_of
from traces import write_trace

from kprof_inject.capture.mode import RecordCost
from kprof_inject.capture.model import Launch
from kprof_inject.export.tables import hatchet_tree
from kprof_inject.timeline.timeline import Timeline, decode_launch

MATMUL = [
    Scope("func", "func", -1, ("/src/matmul.py", 12)),
    Scope("loop", "loop", 0, ("/src/matmul.py", 20)),
    Scope("iter", "iter", 1),
    Scope("load", "op", 2),
    Scope("store", "op", 0),
]
FUNC, LOOP, ITER, LOAD, STORE = range(5)

_LINE = re.compile(r"^(?P<indent>[│├└─ ]*)(?P<values>(?:-?[0-9.]+|nan)(?: (?:-?[0-9.]+|nan))*) (?P<name>.+)$")

Shown = dict[tuple[str, ...], float]


def viewer(*arguments: str | Path) -> str:
    """What ``proton-viewer`` prints; in a process of its own it would import pandas each time."""
    from triton.profiler.viewer import main  # it takes its time

    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(sys, "argv", ["proton-viewer", *map(str, arguments)])
        main()
    return printed.getvalue()


def shown(path: Path, metric: str) -> Shown:
    """What the viewer shows of each frame, by its path below the root."""
    found: Shown = {}
    names: list[str] = []
    for line in viewer("-m", metric, path).splitlines():
        if match := _LINE.match(line):
            names[len(match["indent"]) // 3 :] = [match["name"]]
            found[tuple(names[1:])] = float(match["values"])
    assert names[0] == "ROOT"
    return found


def whole(path: Path) -> Shown:
    """The cycles of each frame and all beneath it: what the viewer shows, without one."""
    found: Shown = {}

    def add_up(frame: dict[str, Any], above: tuple[str, ...]) -> float:
        below = [add_up(child, (*above, child["frame"]["name"])) for child in frame["children"]]
        found[above] = frame["metrics"].get("cycles", 0) + sum(below)
        return found[above]

    add_up(json.loads(path.read_bytes())[0], ())
    return found


def looping(begin: int, iterations: int) -> list[Entry]:
    entries = [start(FUNC, begin), start(LOOP, begin + 11)]
    for number in range(iterations):
        at = begin + 20 + 100 * number
        entries += [start(ITER, at), start(LOAD, at + 3), end(LOAD, at + 40 + number), end(ITER, at + 95)]
    at = begin + 20 + 100 * iterations
    return [*entries, end(LOOP, at), start(STORE, at + 5), end(STORE, at + 25), end(FUNC, at + 60)]


def ctas(*iterations: int) -> list[Cta]:
    return [Cta([looping(500 + n, count), looping(700, count)], sm=n) for n, count in enumerate(iterations)]


def launches(folder: Path, *ctas_of_each: Sequence[Cta], slots: int = 64) -> list[Launch]:
    buffers = [buffer_words(each, slots) for each in ctas_of_each]
    return list(save_launches(folder, kernel_json(MATMUL, buffers[0], 2, name="matmul"), buffers))


def write(folder: Path, timelines: Sequence[Timeline]) -> Path:
    path = folder / "totals.hatchet"
    write_trace(path, timelines)
    return path


def inclusive(timelines: Sequence[Timeline]) -> Counter[tuple[str, ...]]:
    """The cycles of each scope by its path, kernel and root above them, from the columns one by one."""
    found: Counter[tuple[str, ...]] = Counter()
    for timeline in timelines:
        scopes = timeline.table.scopes
        for row in timeline.scopes:
            path = [scopes[row["scope"]]]
            while path[0].parent >= 0:
                path.insert(0, scopes[path[0].parent])
            names = (timeline.launch.kernel.name, *(scope.name for scope in path))
            found[names] += int(row["duration_cycles"])
            if len(path) == 1:
                found[names[:1]] += int(row["duration_cycles"])
                found[()] += int(row["duration_cycles"])
    return found


def test_the_viewer_shows_what_each_scope_takes_with_those_in_it(tmp_path: Path) -> None:
    timelines = [decode_launch(launch) for launch in launches(tmp_path / "capture", ctas(3, 5), ctas(4, 1))]
    path = write(tmp_path, timelines)

    # By hand: four CTAs, of two warps each.
    loads = sum(2 * (37 + n) for iterations in (3, 5, 4, 1) for n in range(iterations))
    assert shown(path, "cycles") == {
        (): 2 * sum(80 + 100 * n for n in (3, 5, 4, 1)),
        ("matmul",): 2 * sum(80 + 100 * n for n in (3, 5, 4, 1)),
        ("matmul", "func"): 2 * sum(80 + 100 * n for n in (3, 5, 4, 1)),
        ("matmul", "func", "loop"): 2 * sum(9 + 100 * n for n in (3, 5, 4, 1)),
        ("matmul", "func", "loop", "iter"): 2 * 95 * (3 + 5 + 4 + 1),
        ("matmul", "func", "loop", "iter", "load"): loads,
        ("matmul", "func", "store"): 2 * 20 * 4,
    }
    assert shown(path, "cycles") == inclusive(timelines) == whole(path)


def test_normalized_cycles_are_those_of_a_warp_on_average(tmp_path: Path) -> None:
    first, second = (decode_launch(launch) for launch in launches(tmp_path / "capture", ctas(3, 5), ctas(4, 1)))
    found = shown(write(tmp_path, [first, second]), "normalized_cycles")
    # Each launch has four warps; Proton, too, adds its launches up.
    both = inclusive([first]) + inclusive([second])
    assert found == {path: pytest.approx(cycles / 4, abs=1e-3) for path, cycles in both.items()}


def test_counts_are_each_frames_own(tmp_path: Path) -> None:
    timelines = [decode_launch(launch) for launch in launches(tmp_path / "capture", ctas(3, 5), ctas(4, 1))]
    counts = shown(write(tmp_path, timelines), "count")
    del counts[()]  # The root has none.
    assert counts == {
        ("matmul",): 2,
        ("matmul", "func"): 8,
        ("matmul", "func", "loop"): 8,
        ("matmul", "func", "loop", "iter"): 26,
        ("matmul", "func", "loop", "iter", "load"): 26,
        ("matmul", "func", "store"): 8,
    }


def test_what_records_cost_is_left_out(tmp_path: Path) -> None:
    (launch,) = launches(tmp_path / "capture", ctas(3))
    costly = replace(launch, kernel=replace(launch.kernel, record_cost=RecordCost(5.0, 5.0, 0.0)))
    timeline = decode_launch(costly)
    found = whole(write(tmp_path, [timeline]))
    assert found == inclusive([timeline])
    assert found["matmul", "func", "store"] == 2 * (20 - 5)


def test_kernels_stand_beside_each_other_and_so_do_scopes_of_one_name(tmp_path: Path) -> None:
    (matmul,) = launches(tmp_path / "matmul", ctas(2))
    twice = [Scope("func"), Scope("load", "op", 0, record="1"), Scope("load", "op", 0, record="2")]
    warp = [start(0, 100), start(1, 110), end(1, 140), start(2, 150), end(2, 200), end(0, 300)]
    add = save_launch(tmp_path / "add", twice, [Cta([warp])], slots=8)
    path = write(tmp_path, [decode_launch(matmul), decode_launch(add)])
    found = whole(path)
    assert {name for name in found if len(name) == 1} == {("matmul",), ("kernel",)}
    assert (found["kernel", "func", "load (1 of 2)"], found["kernel", "func", "load (2 of 2)"]) == (30, 50)
    assert found["kernel", "func"] == found["kernel",] == 200


def test_what_stood_in_what_decides_where_the_table_does_not_say(tmp_path: Path) -> None:
    scopes = [Scope("inner"), Scope("outer"), Scope("alone")]
    warp = [start(1, 100), start(0, 110), start(2, 120), end(2, 125), end(0, 140), end(1, 200)]
    warp += [start(0, 300), end(0, 310), start(1, 400), start(2, 410), end(2, 420), start(0, 430), end(0, 460)]
    warp += [end(1, 500)]
    timeline = decode_launch(save_launch(tmp_path / "capture", scopes, [Cta([warp, warp])], slots=16))
    path = write(tmp_path, [timeline])
    assert whole(path) == {
        (): 420,
        ("kernel",): 420,
        ("kernel", "outer"): 400,
        ("kernel", "outer", "inner"): 120,
        ("kernel", "outer", "inner", "alone"): 10,
        ("kernel", "outer", "alone"): 20,
        ("kernel", "inner"): 20,
    }
    assert shown(path, "count")["kernel", "outer"] == 4


def test_what_a_ring_lost_leaves_no_holes_in_the_tree(tmp_path: Path) -> None:
    (launch,) = launches(tmp_path / "capture", [Cta([looping(500, 9), []])], slots=8)
    found = whole(write(tmp_path, [decode_launch(launch)]))
    # The newest eight records: the starts of function and loop are gone, and of all iterations but the last.
    assert found["matmul", "func", "loop", "iter"] == 95
    assert found["matmul", "func", "loop", "iter", "load"] == 37 + 8
    assert found["matmul", "func", "loop"] == 95
    assert found["matmul", "func"] == found[()] == 95 + 20


def test_of_scopes_that_cross_each_counts(tmp_path: Path) -> None:
    scopes = [Scope("func"), Scope("copy", "op", 0), Scope("dot", "op", 0)]
    warp = [start(0, 100), start(1, 200), start(2, 300), end(1, 400), end(2, 600), end(0, 1000)]
    timeline = decode_launch(save_launch(tmp_path / "capture", scopes, [Cta([warp])], slots=8))
    found = whole(write(tmp_path, [timeline]))
    assert found["kernel", "func", "copy"] == 200
    assert found["kernel", "func", "dot"] == 300
    assert found["kernel", "func"] == 900


def test_ranks_have_trees_of_their_own(tmp_path: Path) -> None:
    timelines = decode_ranks(tmp_path / "capture", [0, 1])
    found = shown(write(tmp_path, timelines), "cycles")
    for rank in (0, 1):
        rows = [row for row in rows_of(timelines) if row["rank"] == rank]
        expected = sum(row["duration_cycles"] for row in rows if row["name"] == "func")
        tree = (f"rank {rank}, device {rank}", "mat,mul", "func")
        assert found[tree] == expected
        # Names are shown, whatever is in them.
        inner = {path[-1] for path in found if path[:4] == (*tree, "iter[0]") and len(path) == 5}
        assert inner == {"load, a", 'say "hi"', "two lines ", "größe → 𝛼", "lone ?", "(no name)", "'; DROP"}


def frames(tree: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All frames below this, by name."""
    found = {tree["frame"]["name"]: tree}
    for child in tree["children"]:
        found |= frames(child)
    return found


def test_the_file_has_the_form_of_protons(tmp_path: Path) -> None:
    (launch,) = launches(tmp_path / "capture", ctas(1))
    on_cuda = {**launch.kernel.metadata, "target": {"backend": "cuda", "arch": 90, "warp_size": 32}}
    launch = replace(launch, device=3, kernel=replace(launch.kernel, metadata=on_cuda))
    root, devices = json.loads(b"".join(hatchet_tree([decode_launch(launch)])))
    assert devices == {}
    assert root["frame"] == {"name": "ROOT", "type": "function"}
    # The viewer adds up what the root has.
    assert root["metrics"] == {"cycles": 0, "normalized_cycles": 0}
    assert frames(root)["func"] == {
        "frame": {"name": "func", "type": "function"},
        "metrics": {
            "cycles": 2 * (180 - 109 - 20),
            "normalized_cycles": 180 - 109 - 20,
            "count": 2,
            "device_id": "3",
            "device_type": "1",
            "source": "/src/matmul.py:12",
        },
        "children": [frames(root)["loop"], frames(root)["store"]],
    }


def test_launches_that_recorded_nothing_are_counted(tmp_path: Path) -> None:
    (launch,) = launches(tmp_path / "capture", [Cta([[], []])])
    root, _ = json.loads(b"".join(hatchet_tree([decode_launch(launch)])))
    assert frames(root)["matmul"]["metrics"] == {"count": 1}
    assert frames(root)["matmul"]["children"] == []
    assert json.loads(b"".join(hatchet_tree([])))[0]["children"] == []


def test_marks_have_a_count_alone(tmp_path: Path) -> None:
    scopes = [Scope("func"), Scope("here", "mark", 0)]
    warp = [start(0, 100), start(1, 200), end(1, 217), start(1, 300), end(1, 317), end(0, 500)]
    timeline = decode_launch(save_launch(tmp_path, scopes, [Cta([warp])], slots=8))
    root, _ = json.loads(b"".join(hatchet_tree([timeline])))
    found = frames(root)
    assert found["here"]["metrics"] == {"count": 2, "device_id": "0"}
    assert found["func"]["metrics"]["cycles"] == 400


def test_scopes_stand_in_their_partitions(tmp_path: Path) -> None:
    root, _ = json.loads(b"".join(hatchet_tree(drawn.partitioned(tmp_path))))
    (kernel,) = root["children"]
    trees = {one["frame"]["name"]: one["children"] for one in kernel["children"]}
    assert {name: [child["frame"]["name"] for child in tree] for name, tree in trees.items()} == {
        "default partition": ["func"],
        "partition 0": ["loop"],
    }
    assert trees["default partition"][0]["metrics"]["cycles"] == 2 * 500
    assert trees["partition 0"][0]["metrics"]["cycles"] == 300
