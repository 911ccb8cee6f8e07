"""The documentation as a site: every page is in it and in its search, and a link that leads nowhere fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from programs.child import REPO

pytest.importorskip("material", reason="needs the extra docs")


def build(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_every_page_is_in_the_site_and_found_by_its_search(tmp_path: Path) -> None:
    ended = build(REPO, tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = {
        one["location"].partition("#")[0]
        for one in json.loads((tmp_path / "search/search_index.json").read_text())["docs"]
    }
    pages = {path.stem for path in (REPO / "docs").glob("*.md")} - {"README"}
    assert found == {f"{name}.html" for name in pages | {"index"}}
    assert (
        "https://github.com/kprof-inject/kprof-inject/blob/main/examples/matmul.py"
        in (tmp_path / "tutorial.html").read_text()
    )
    contents = (tmp_path / "index.html").read_text()
    assert [name for name in sorted(pages) if f'href="{name}.html" class="md-nav__link"' not in contents] == []


def test_a_link_that_leads_nowhere_fails(tmp_path: Path) -> None:
    shutil.copytree(REPO / "docs", tmp_path / "docs")
    shutil.copy(REPO / "mkdocs.yml", tmp_path)
    (tmp_path / "scripts").mkdir()
    shutil.copy(REPO / "scripts/docs-links.py", tmp_path / "scripts")
    links = ("gone.md", "tutorial.md#away", "pictures/gone.png")
    with (tmp_path / "docs/traces.md").open("a") as page:
        page.writelines(f"\n[there]({link})\n" for link in links)
    ended = build(tmp_path, tmp_path / "site")
    assert ended.returncode == 1
    assert [link for link in links if not re.search(rf"traces\.md.*{re.escape(link)}", ended.stderr)] == []
