"""Every command in the documentation, run as its reader would: page by page, each page in a folder of its own.

Those that need a GPU are run by ``tests/gpu/test_docs_on_gpu.py``.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import unquote

import click
import pytest
from pages import PAGES, Reader, commands_of, files_of, stray_commands
from programs.child import REPO

from kprof_inject.cli.main import root


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_work_one_after_the_other(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    reader = Reader(tmp_path, text)
    for command in commands_of(text):
        if not command.needs_gpu:
            reader.follow(command)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_command_stands_where_nothing_runs_it_and_programs_are_python(page: Path) -> None:
    assert stray_commands(page.read_text()) == []
    for name, text in files_of(page.read_text()).items():
        if name.endswith(".py"):
            compile(text, f"{page.name}: {name}", "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_command_for_gpus_has_options_that_there_are(page: Path) -> None:
    for command in commands_of(page.read_text()):
        words = [word for word in shlex.split(command.text, comments=True) if word != "|"]
        if command.needs_gpu and words[0] == "kprof-inject":
            context = click.Context(root)
            subcommand = root.get_command(context, words[1])
            assert subcommand is not None, command.text
            subcommand.make_context(words[1], words[2:], parent=context)


LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors_of(page: Path) -> set[str]:
    """What GitHub calls a page's headings: in small letters, without punctuation, blanks as hyphens."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, REPO / "CONTRIBUTING.md", REPO / "SECURITY.md"], ids=lambda page: page.name)
def test_links_within_the_documentation_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in LINK.findall(text):
        if "://" in link:
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors_of(target), f"{page.name}: {link}"


def test_every_page_is_in_the_index() -> None:
    index = (REPO / "docs/README.md").read_text()
    pages = {path.name for path in (REPO / "docs").glob("*.md")} - {"README.md"}
    assert {link.partition("#")[0] for link in LINK.findall(index)} >= pages
