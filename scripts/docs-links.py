"""Hook of MkDocs: links to what is not in docs/ lead to the repository."""

from __future__ import annotations

from typing import Any


def on_page_markdown(markdown: str, *, config: Any, **_: Any) -> str:
    """Return a page whose links out of the folder are those of the repository."""
    return markdown.replace("](../", f"]({config.repo_url}/blob/main/")
