"""What the page of troubles quotes is what the program prints."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from programs.child import REPO

PAGE = REPO / "docs/troubleshooting.md"
# What is no message of ours: commands, options, names.
NOT_PRINTED = re.compile(r"^(kprof-inject|pip|python|--\w|-\w|\w+$|\S*\.\w+$)")


def printed_texts() -> Iterator[str]:
    """Every text in the package's code; what is filled in at run time is an ellipsis."""
    for path in (REPO / "kprof_inject").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub(r"{[^}]*}", "…", node.value)
            elif isinstance(node, ast.JoinedStr):
                yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)


def quoted() -> list[str]:
    """The messages in the first column of the page's tables."""
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    words = [word for row in rows for word in re.findall(r"`([^`]+)`", row)]
    return [word for word in words if not NOT_PRINTED.match(word)]


def test_a_quoted_message_is_printed_by_the_program() -> None:
    texts = "\n".join(printed_texts())
    assert len(quoted()) >= 30
    for message in quoted():
        # Either side may fill in more than the other, in any place.
        parts = [re.escape(part.strip()) for part in message.split("…") if part.strip(" :;,()%")]
        assert parts, message
        assert re.search(r"[^\n]*?".join(parts), texts), message
