"""What is said of a kernel is the same wherever it is said: on the screen, in all details, JSON, Python, page and diff.

Each sentence of LIMIT, TRY and TRUST is compared, and each figure that two of them show.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from html_pages import unpacked, unpacked_report
from test_frozen import CAPTURES

import kprof_inject
from kprof_inject.capture.encoding import json_values, rounded

Json = dict[str, Any]
_WIDE = {"COLUMNS": "4000"}


class Surfaces:
    """All that is said of a capture; ``answers`` is what ``report --json`` prints."""

    def __init__(self, kprof: CommandLine, capture: Path) -> None:
        def printed(*words: str | Path) -> str:
            ended = kprof("report", *words, capture, env=_WIDE)
            assert ended.exit_code == 0, ended.stderr
            return ended.stdout

        self.screen = printed("--html", "page.html")
        self.details = printed("-v")
        self.answers: list[Json] = json.loads(printed("--json"))
        self.launches: list[Json] = json.loads(printed("--json", "--launch", "0-"))
        self.page = unpacked(kprof.folder / "page.html")
        self.page_report = unpacked_report(kprof.folder / "page.html")
        results = kprof_inject.load(capture)
        self.python = [rounded(json_values(answer)) for answer in results.answers()]
        self.findings = [rounded(json_values(finding)) for finding in results.findings()]
        self.report = results.report()


@pytest.fixture(scope="module", params=CAPTURES)
def surfaces(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Surfaces:
    return Surfaces(CommandLine(tmp_path_factory.mktemp("surfaces")), CAPTURES[request.param])
