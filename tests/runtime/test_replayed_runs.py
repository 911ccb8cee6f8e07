"""``run`` launches kernels again by itself; which those are is no matter of Triton's version."""

from __future__ import annotations

from fake_gpu.captured import launches_in
from fake_runs import LAUNCHES, FakeRuns
from snapshots import check

from kprof_inject.timeline.trust import judge


def test_run_launches_again_what_the_dump_saw_too_seldom(fake_runs: FakeRuns) -> None:
    """``scale`` is launched often enough; of the autotuned kernel it is the build that was chosen."""
    plain = fake_runs.plain("return")
    ended = fake_runs.kprof("run", fake_runs.workspace, LAUNCHES, "return")
    assert ended.exit_code == 0, ended.stderr
    assert [line for line in ended.stdout.splitlines() if not line.startswith("holds")] == [
        line for line in plain.stdout.splitlines() if not line.startswith("holds")
    ]
    (said,) = (line for line in ended.stderr.splitlines() if "repeating" in line)
    check("runtime/replayed_runs", said)
    assert not (fake_runs.workspace / "launches").exists()
    verdicts = {launch.kernel.name: judge(launch.kernel).overhead for launch in launches_in(fake_runs.capture)}
    assert set(verdicts) == {"scale", "power", "tuned"}
    assert all(overhead is not None and overhead.is_measurable for overhead in verdicts.values())


def test_how_often_is_a_number_from_one_on(fake_runs: FakeRuns) -> None:
    ended = fake_runs.kprof("run", fake_runs.workspace, "--replay", "0", LAUNCHES)
    assert ended.exit_code == 2
    assert "--replay" in ended.stderr
