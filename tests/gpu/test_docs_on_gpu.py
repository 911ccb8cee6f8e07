"""The pages with commands that need a GPU, followed from the first command to the last."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from pages import PAGES, Reader, commands_of

WITH_GPU = [page for page in PAGES if any(command.needs_gpu for command in commands_of(page.read_text()))]


@pytest.mark.parametrize("page", WITH_GPU, ids=lambda page: page.name)
def test_a_page_can_be_followed(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    reader = Reader(tmp_path, text)
    for command in commands_of(text):
        if not command.text.startswith("proton-viewer") or find_spec("hatchet"):
            reader.follow(command)
