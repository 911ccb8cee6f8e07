"""The pages with commands that need a GPU, followed from the first command to the last."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from foreign_buffers import Mark, flashinfer
from pages import PAGES, Reader, commands_of

WITH_GPU = [page for page in PAGES if any(command.needs_gpu for command in commands_of(page.read_text()))]


@pytest.mark.parametrize("page", WITH_GPU, ids=lambda page: page.name)
def test_a_page_can_be_followed(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    if page.name == "other-profilers.md":  # it reads a buffer that the reader's own program saved
        np.save(tmp_path / "decode.npy", flashinfer(1, [[[Mark(0, 0, 1_000), Mark(0, 1, 2_000)]]]))
    reader = Reader(tmp_path, text)
    for command in commands_of(text):
        reader.follow(command)
