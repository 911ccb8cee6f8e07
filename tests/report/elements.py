"""The elements of a page with their attributes and the texts that they begin with; each that is opened is closed."""

from __future__ import annotations

from collections.abc import Iterable
from html.parser import HTMLParser

_EMPTY = ("meta", "link", "input", "br", "img", "hr")


class Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self._open: list[str] = []
        self._begins = False
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))
        self._open += [] if tag in _EMPTY else [tag]
        self._begins = True

    def handle_startendtag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self._begins = False

    def handle_data(self, data: str) -> None:
        if self._begins:
            tag, attributes, text = self.found[-1]
            self.found[-1] = tag, attributes, text + data

    def named(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, text) for name, attributes, text in self.found if name == tag]
