"""The pytest fixtures ``kprof_profile`` and ``kprof_baseline``, and pages of tests that fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kprof_inject.errors import KprofError

if TYPE_CHECKING:
    from kprof_inject.api import Profile

_PROFILES = pytest.StashKey[list["Profile"]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our command line options to pytest's."""
    group = parser.getgroup("kprof-inject")
    group.addoption(
        "--kprof-pages", metavar="DIR", help="When a test fails, write the HTML page of its profile to this folder."
    )
    group.addoption(
        "--kprof-store",
        action="store_true",
        help="Store new baselines of kprof_baseline instead of comparing with the stored ones.",
    )


@pytest.fixture
def kprof_profile(request: pytest.FixtureRequest) -> Callable[..., Profile]:
    """Return ``kprof_inject.profile`` for a test, whose page is written if the test fails.

    with kprof_profile(at=["func"]) as prof:
        kernel[grid](x, y)
    assert prof.timeline.scopes.size
    """
    import kprof_inject

    profiles = request.node.stash.setdefault(_PROFILES, [])

    def profile(*args: Any, **kwargs: Any) -> Profile:
        made: Profile = kprof_inject.profile(*args, **kwargs)
        profiles.append(made)
        return made

    return profile


@pytest.fixture
def kprof_baseline(
    request: pytest.FixtureRequest, kprof_profile: Callable[..., Profile]
) -> Callable[..., AbstractContextManager[Profile]]:
    """Return a context manager that fails the test if its kernels are slower than those of a stored workspace.

    with kprof_baseline("baselines/matmul", fail_above="5%", at="loop"):
        kernel[grid](x, y)

    It takes the arguments of ``kprof_profile`` and returns the same profile. The test fails where ``kprof-inject diff
    --fail-above`` does: if a kernel is certainly slower by more, or if that cannot be determined. With
    ``--kprof-store``, the workspace is written instead. A relative path starts at pytest's root. Raises ``KprofError``
    for invalid arguments, and if the block launches no kernel.
    """
    stores = bool(request.config.getoption("--kprof-store"))

    @contextmanager
    def baseline(path: str | Path, *, fail_above: str | float = "5%", **choices: Any) -> Iterator[Profile]:
        import kprof_inject
        from kprof_inject.analysis.comparison.verdicts import diff_captures
        from kprof_inject.report.diff.terminal import crossings, parse_limit
        from kprof_inject.report.diff.wording import first_answer

        limit = parse_limit(str(fail_above))
        folder = request.config.rootpath / path
        if "folder" in choices:
            raise KprofError("a baseline has its own folder", hint="leave folder= out, or use kprof_profile")
        stored = None
        if not stores:
            try:
                stored = kprof_inject.load(folder)
            except KprofError as error:
                pytest.fail(f"there is no baseline: {error.what}; store one: pytest --kprof-store", pytrace=False)
        with kprof_profile(**choices, **({"folder": folder} if stores else {})) as prof:
            yield prof
        _ = prof.timeline  # raises, with the reason, if there is none
        if stored is not None:
            diff = diff_captures(stored.timelines, prof.timelines)
            if crossed := list(crossings(diff, limit, ())):
                answer = "; ".join(first_answer(diff))
                pytest.fail("\n".join([*crossed, f"A is {folder}, B is this test: {answer}"]), pytrace=False)

    return baseline


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write a page for each profile of a test that failed, and add the paths to the test's report."""
    report = yield
    folder = item.config.getoption("--kprof-pages")
    if folder and report.when == "call" and report.failed:
        name = re.sub(r"[^\w.\[\]-]+", "-", item.nodeid)
        started_in = item.config.invocation_params.dir  # the test may have changed the current folder
        profiles, lines = item.stash.get(_PROFILES, []), []
        for number, prof in enumerate(profiles, 1):
            page = Path(folder, f"{name}-{number}.html")
            try:
                (started_in / page).parent.mkdir(parents=True, exist_ok=True)
                prof.html(started_in / page)
                lines.append(f"wrote {page}")
            except (KprofError, OSError) as error:
                lines.append(f"no page: {error}")
        if lines:
            report.sections.append(("kprof-inject", "\n".join(lines)))
    return report
