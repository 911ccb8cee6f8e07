"""Snapshots: every one is checked by a test, and one that differs fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import snapshots
from snapshots import FOLDER, check, check_cases, entries_of

from kprof_inject.version import __version__


def test_every_snapshot_is_checked_by_a_test() -> None:
    texts = [path.read_text() for path in FOLDER.parent.rglob("*.py") if path != Path(__file__)]
    of_cases = [path.read_text() for path in FOLDER.parent.rglob("cases/*.txt")]
    for path in FOLDER.rglob("*.txt"):
        name = str(path.relative_to(FOLDER).with_suffix(""))
        checking = [text for text in texts if f'"{name}"' in text]
        assert checking, f"no test checks {path}: remove it"
        if any(f'check_cases("{name}"' in text for text in checking):
            continue  # that compares all cases at once
        for case in entries_of(path.read_text()):
            assert any(case in text for text in (*checking, *of_cases)), f"no test checks {case!r} of {path}: remove it"


def test_what_was_written_is_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "FOLDER", tmp_path)
    monkeypatch.setattr(snapshots, "WRITES", True)
    check("area/one", f"a text\n\nof two paragraphs, 2 hours ago  \n{FOLDER.parent}, kprof-inject {__version__}\n")
    for case in ("first", "second", "first"):
        check("area/cases", f"{case} text", case)
    assert (tmp_path / "area" / "cases.txt").read_text() == "== first ==\nfirst text\n\n== second ==\nsecond text\n"
    monkeypatch.setattr(snapshots, "WRITES", False)
    check("area/one", "a text\n\nof two paragraphs, AGE ago\nREPO/tests, kprof-inject VERSION")
    check_cases("area/cases", {"first": "first text", "second": "second text"})
    with pytest.raises(pytest.fail.Exception, match=r"'second', differs(.|\n)*-second text\n\+third text"):
        check("area/cases", "third text", "second")
    with pytest.raises(pytest.fail.Exception, match="differs: scripts/snapshots rewrites it"):
        check_cases("area/cases", {"first": "first text"})
    for name, case in (("area/none", ""), ("area/cases", "third")):
        with pytest.raises(pytest.fail.Exception, match=r"missing(.|\n)*the text"):
            check(name, "the text", case)
