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


LINKS = ("gone.md", "tutorial.md#away", "pictures/gone.png")


def test_every_page_is_in_the_site_and_its_search_and_only_links_that_lead_nowhere_fail(tmp_path: Path) -> None:
    shutil.copytree(REPO / "docs", tmp_path / "docs")
    shutil.copy(REPO / "mkdocs.yml", tmp_path)
    (tmp_path / "scripts").mkdir()
    shutil.copy(REPO / "scripts/docs-links.py", tmp_path / "scripts")
    with (tmp_path / "docs/traces.md").open("a") as page:
        page.writelines(f"\n[there]({link})\n" for link in LINKS)
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    warnings = [line for line in ended.stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == len(LINKS), ended.stderr
    assert [link for link in LINKS if not re.search(rf"traces\.md.*{re.escape(link)}", "\n".join(warnings))] == []

    found = {
        one["location"].partition("#")[0] for one in json.loads((site / "search/search_index.json").read_text())["docs"]
    }
    pages = {path.stem for path in (REPO / "docs").glob("*.md")} - {"README"}
    assert found == {f"{name}.html" for name in pages | {"index"}}
    example = "https://github.com/kprof-inject/kprof-inject/blob/main/examples/matmul.py"
    assert example in (site / "tutorial.html").read_text()
    contents = (site / "index.html").read_text()
    assert [name for name in sorted(pages) if f'href="{name}.html" class="md-nav__link"' not in contents] == []
