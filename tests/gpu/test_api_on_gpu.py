"""``kprof_inject.profile`` in this very process, as a notebook has it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

sys.path.insert(0, str(Path(__file__).parent / "programs"))

import kprof_inject  # noqa: E402
from kprof_inject.errors import KprofError  # noqa: E402
from kprof_inject.pytest_plugin import kprof_profile  # noqa: E402, F401 (a fixture)

CTAS, STEPS = 8, 100


@pytest.fixture
def launch() -> Iterator[Callable[[], object]]:
    """Makes one launch of a kernel with a loop of STEPS iterations, and gives its result."""
    import kernels

    x = torch.linspace(0, 1, CTAS * kernels.BLOCK, device="cuda")

    def call() -> object:
        out = torch.empty_like(x)
        kernels.launch(kernels.decay_kernel, x, out, STEPS)
        return out

    yield call


def test_a_block_is_profiled_in_one_process(launch: Callable[[], object], tmp_path: Path) -> None:
    alone = launch()
    with kprof_inject.profile(at=["func", "loop"], launches="all") as prof:
        inside = [launch() for _ in range(3)]
        assert len(prof.timelines) == 3
        prof.enabled = False
        launch()
        prof.enabled = True
        inside.append(launch())
    after = launch()
    assert all(bool((out == alone).all()) for out in (*inside, after))
    assert [len(timeline.scopes) for timeline in prof.timelines] == [2 * CTAS * 4] * 4
    assert [scope.scope for scope in prof.summary()[0].scopes] == ["func", "loop[0]"]
    trace = json.loads(prof.export(tmp_path / "trace.json").read_text())
    kinds = Counter(event["cat"] for event in trace["traceEvents"] if event["ph"] == "X")
    kinds.pop("host", None)  # each launch's call, if the device's clock was read beside the host's
    assert kinds == {"launch": 4, "func": 4 * CTAS * 4, "loop": 4 * CTAS * 4}
    prof.reset()
    with pytest.raises(KprofError, match="no launch was recorded"):
        _ = prof.timeline


def test_the_last_launch_alone_is_kept_unless_more_are_asked_for(launch: Callable[[], object]) -> None:
    with kprof_inject.profile(at=["iter"], mode=kprof_inject.Mode(buffer="global", buffer_bytes=1 << 14)) as prof:
        for _ in range(5):
            launch()
        assert prof.timeline.launch.index == 4
        launch()
    assert len(prof.timelines) == 1
    assert len(prof.timeline.scopes) == CTAS * 4 * STEPS


def test_a_selector_that_finds_nothing_leaves_the_kernel_alone(launch: Callable[[], object]) -> None:
    with kprof_inject.profile(at=["loop[7]"]) as prof:
        launch()
    with pytest.raises(KprofError, match=r"no launch was recorded: decay_kernel: .*loop\[7\]"):
        _ = prof.timeline


def test_the_fixture_records_as_well(
    launch: Callable[[], object],
    kprof_profile: Callable[..., kprof_inject.Profile],  # noqa: F811
) -> None:
    with kprof_profile(at=["func"]) as prof:
        launch()
    assert len(prof.timeline.scopes) == CTAS * 4
