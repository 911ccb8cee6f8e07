"""The page as a file: one piece, and nothing in it that a capture says is markup."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from pathlib import Path

from buffers import Cta, Scope, end, save_launch, start
from elements import Elements
from unpacked import unpacked, unpacked_report

from kprof_inject.analysis.program import Report
from kprof_inject.errors import printable
from kprof_inject.report.html.document import write_html
from kprof_inject.timeline.timeline import Timeline, decode_launch

HOSTILE = "</script><script>alert(1)</script><!--\u202e\u2028\x00\x1b]0;\"'&{{data}}é"


def timeline_of(folder: Path, name: str = "kernel") -> Timeline:
    scopes = [Scope(name, "func", -1, (f"/src/{name}.py", 3), [(name, 4)])]
    return decode_launch(save_launch(folder, scopes, [Cta([[start(0, 5), end(0, 900)]])], slots=4))


def page_text(path: Path, *timelines: Timeline) -> str:
    size = write_html(path, Report.of(timelines))
    assert path.stat().st_size == size
    return path.read_text(encoding="utf-8")


def import_map_of(elements: Elements) -> str:
    """Return the import map that ``boot.js`` puts into the page."""
    (packed,) = [text for values, text in elements.named("script") if values.get("id") == "modules"]
    return zlib.decompress(base64.b64decode(packed)).decode()


def test_the_page_asks_for_nothing(tmp_path: Path) -> None:
    elements = Elements(page_text(tmp_path / "page.html", timeline_of(tmp_path)))
    for tag, attributes, _ in elements.found:
        assert "src" not in attributes, tag
        assert attributes.get("href", "data:").startswith("data:"), tag  # type: ignore[union-attr]
    policy = next(values["content"] for values, _ in elements.named("meta") if values.get("http-equiv"))
    assert policy and policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


def test_the_policy_names_exactly_the_inline_elements(tmp_path: Path) -> None:
    elements = Elements(page_text(tmp_path / "page.html", timeline_of(tmp_path)))
    policy = next(values["content"] for values, _ in elements.named("meta") if values.get("http-equiv")) or ""
    runs = [text for values, text in elements.named("script") if "type" not in values]
    inline = [*runs, import_map_of(elements), *(text for _, text in elements.named("style"))]
    hashes = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in inline}
    assert set(re.findall(r"'sha256-([^']+)'", policy)) == hashes
    assert len(inline) == 3


def test_names_are_never_markup(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    text = page_text(path, timeline_of(tmp_path, HOSTILE))
    plain = page_text(tmp_path / "plain.html", timeline_of(tmp_path / "plain"))

    tags = [tag for tag, _, _ in Elements(text).found]
    assert tags == [tag for tag, _, _ in Elements(plain).found]
    assert "alert(1)" not in text.replace("&lt;script&gt;alert(1)&lt;", "")
    (scope,) = unpacked(path)[0]["meta"]["scopes"]
    assert scope["name"] == printable(HOSTILE)


def test_the_page_reads_its_launches_and_kernels_first(tmp_path: Path) -> None:
    page_text(tmp_path / "page.html", timeline_of(tmp_path))
    page = unpacked_report(tmp_path / "page.html")
    assert [(one["title"], one["place_name"], one["launch"], one["duration_ns"]) for one in page["launches"]] == [
        ("kernel", "", 0, 1000)
    ]
    assert "place" not in page["launches"][0], "it names the host"
    assert [(row["kernel"]["name"], row["launch"], row["launches"]) for row in page["kernels"]] == [("kernel", 0, [0])]


def test_a_capture_without_its_sources_has_a_page(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path)
    (timeline.launch.kernel.folder / "sources.json").unlink()
    assert page_text(tmp_path / "page.html", timeline).endswith("</html>\n")


def test_no_placeholder_is_left(tmp_path: Path) -> None:
    assert "{{" not in page_text(tmp_path / "page.html", timeline_of(tmp_path))


def test_several_kernels_in_the_title(tmp_path: Path) -> None:
    timelines = [timeline_of(tmp_path / str(number)) for number in range(2)]
    assert "<title>kernel · kprof-inject</title>" in page_text(tmp_path / "page.html", *timelines)
    assert "<title>no launch · kprof-inject</title>" in page_text(tmp_path / "none.html")
