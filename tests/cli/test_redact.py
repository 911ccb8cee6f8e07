"""``--redact``: what others get to see names neither the program's command line nor its hosts."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from ranks import BEGIN_NS, Timer, save_process
from snapshots import check

from kprof_inject.cli.main import root

SECRETS = ("--api-key=hunter2", "/home/jane/venv", "janes-laptop", "janes-server", "5e2d-boot")


@pytest.fixture
def captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two captures in the working directory, each of two processes on two hosts."""
    for side in ("before", "after"):
        for rank, host in enumerate(("janes-laptop", "janes-server")):
            timer = Timer(5_000_000 + rank)
            launches = [(timer, BEGIN_NS + ns) for ns in (0, 20_000)]
            info = {"argv": ["train.py", "--api-key=hunter2"], "executable": "/home/jane/venv/bin/python"}
            save_process(
                tmp_path / "jane" / side,
                str(rank),
                launches,
                [timer.reading(BEGIN_NS)],
                rank=rank,
                host=host,
                boot_id=f"5e2d-boot-{rank}",
                **info,
            )
    monkeypatch.chdir(tmp_path)
    return tmp_path


WRITTEN = [
    ("page.html", ["report", "jane/before", "--json", "--html", "page.html"]),
    ("trace.json", ["trace", "jane/before", "-o", "trace.json"]),
    ("trace.pftrace", ["trace", "jane/before", "-o", "trace.pftrace"]),
    ("table.csv", ["trace", "jane/before", "-o", "table.csv"]),
    ("totals.hatchet", ["trace", "jane/before", "-o", "totals.hatchet"]),
    ("diff.html", ["diff", "jane/before", "jane/after", "--json", "--html", "diff.html"]),
]


@pytest.mark.parametrize(("file", "arguments"), WRITTEN, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_written_names_neither_arguments_nor_hosts(
    captures: Path, file: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    root.main(arguments, standalone_mode=False)
    open_text = (captures / file).read_bytes().decode(errors="replace") + capsys.readouterr().out
    root.main([*arguments, "--redact"], standalone_mode=False)
    text = (captures / file).read_bytes().decode(errors="replace") + capsys.readouterr().out
    assert [secret for secret in SECRETS if secret in text] == []
    assert "jane/" not in text.partition("<h1>")[2]
    assert "matmul" in text
    # But for the sums of all that ran, which name no host, the file would have told of one.
    assert file == "totals.hatchet" or any(secret in open_text for secret in (*SECRETS, "jane/before"))


def test_hosts_are_numbered(captures: Path) -> None:
    root.main(["trace", "jane/before", "-o", "table.csv", "--redact"], standalone_mode=False)
    header, *rows = [line.split(",") for line in (captures / "table.csv").read_text().splitlines()]
    assert {row[header.index("host")] for row in rows} == {"host 1", "host 2"}


@pytest.mark.parametrize("command", ["report", "trace", "diff"])
def test_the_help_says_what_goes_and_what_stays(command: str) -> None:
    found = root.get_command(click.Context(root), command)
    assert found is not None
    text = " ".join(found.get_help(click.Context(found)).split())
    assert "host names" in text and "integer arguments" in text
    said = re.sub(r"\s+", " ", re.findall(r"--redact (.*?) -", text)[0])
    check("cli/redact", said, "--redact")
