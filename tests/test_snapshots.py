"""Snapshots: every one is checked by a test, and one that differs fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import snapshots
from snapshots import FOLDER, check, check_cases, entries_of, normalised

from kprof_inject.version import __version__


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(snapshots, "FOLDER", tmp_path)
    monkeypatch.setattr(snapshots, "WRITES", True)
    return tmp_path


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


def test_what_was_written_is_expected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check("area/one", "a text\n\nof two paragraphs\n")
    for case in ("first", "second", "first"):
        check("area/cases", f"{case} text", case)
    check_cases("area/all", {"a": "1", "b": ""})
    assert (folder / "area" / "cases.txt").read_text() == "== first ==\nfirst text\n\n== second ==\nsecond text\n"
    monkeypatch.setattr(snapshots, "WRITES", False)
    check("area/one", "a text\n\nof two paragraphs")
    check("area/cases", "second text", "second")
    check_cases("area/all", {"a": "1", "b": ""})
    with pytest.raises(pytest.fail.Exception, match=r"'second', differs(.|\n)*-second text\n\+third text"):
        check("area/cases", "third text", "second")
    for texts in ({"a": "1"}, {"a": "1", "b": "", "c": ""}):
        with pytest.raises(pytest.fail.Exception, match="differs: scripts/snapshots rewrites it"):
            check_cases("area/all", texts)
    for name, case in (("area/none", ""), ("area/cases", "third")):
        with pytest.raises(pytest.fail.Exception, match=r"missing(.|\n)*the text"):
            check(name, "the text", case)


def test_what_varies_is_replaced(tmp_path: Path) -> None:
    assert normalised(f"{tmp_path}/a: 2 hours ago  \n") == "TMP/a: AGE ago"
    assert normalised(f"{FOLDER.parent}/b, kprof-inject {__version__}") == "REPO/tests/b, kprof-inject VERSION"
    assert normalised("2 hours, Triton 3.6.0") == "2 hours, Triton 3.6.0"
