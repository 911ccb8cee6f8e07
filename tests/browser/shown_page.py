"""A report in a browser, and what a reader does with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, Route

_PATIENCE_S = 60

Show = Callable[..., "ShownPage"]
"""The fixture ``show``."""
# As `timeline/draw.js` has it.
GUTTER, RULER = 132, 24


@dataclass
class ShownPage:
    """A page that was opened, with everything that went wrong or left the page since."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def canvas(self) -> Locator:
        return self.page.locator("canvas.timeline-rows")

    @property
    def range_text(self) -> str:
        return self.page.locator(".shown-range").inner_text()

    @property
    def hash(self) -> dict[str, str]:
        """The address's state, once it stands there."""
        self.page.wait_for_timeout(300)
        text: str = self.page.evaluate("() => location.hash")
        return dict(part.split("=") for part in text.removeprefix("#").split("&") if part)

    @property
    def draw_ms(self) -> float:
        """How long the last frame took."""
        return float(self.canvas.get_attribute("data-draw-ms") or "nan")

    def settle(self) -> None:
        """Until the next frame is drawn."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def at(self, share: float, y: float) -> tuple[float, float]:
        """A place on the screen: so far through the width in which rows are drawn, so far below the ruler."""
        box = self.canvas.bounding_box()
        assert box
        return box["x"] + GUTTER + share * (box["width"] - GUTTER), box["y"] + RULER + y

    def point(self, share: float, y: float) -> None:
        self.page.mouse.move(*self.at(share, y))
        self.settle()

    def click(self, share: float, y: float) -> None:
        self.page.mouse.click(*self.at(share, y))
        self.settle()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()

    def search(self, text: str) -> str:
        """What is said of the matches."""
        self.page.locator(".search-input").fill(text)
        self.settle()
        return self.page.locator(".search-count").inner_text()

    def tooltip(self) -> str:
        box = self.page.locator("#view-timeline .view-tooltip")
        return box.inner_text() if box.is_visible() else ""

    def panel(self) -> str:
        return self.page.locator(".timeline-chosen").inner_text()

    def pixel(self, share: float, y: float) -> tuple[int, int, int]:
        """The colour there, by the canvas's own data."""
        box = self.canvas.bounding_box()
        assert box
        x, down = self.at(share, y)
        script = "(element, [x, y]) => [...element.getContext('2d').getImageData(x, y, 1, 1).data]"
        red, green, blue, _ = self.canvas.evaluate(script, [round(x - box["x"]), round(down - box["y"])])
        return red, green, blue


def open_page(
    browser: Browser, path: Path, *, fragment: str = "", dark: bool = False, width: int = 1280, height: int = 800
) -> ShownPage:
    """Opens it with every request but its own refused, and waits until it is drawn."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light")
    shown = ShownPage(context.new_page())
    own = path.as_uri()

    def decide(route: Route) -> None:
        if route.request.url.partition("#")[0] == own:
            route.continue_()
        else:
            shown.requests.append(route.request.url)
            route.abort()

    context.route(lambda url: not url.startswith("data:"), decide)
    shown.page.on("console", lambda message: shown.errors.append(message.text) if message.type == "error" else None)
    shown.page.on("pageerror", lambda error: shown.errors.append(str(error)))
    # A page with a listener for them waits for its answer: there must be none.
    shown.page.on("dialog", lambda dialog: shown.errors.append(dialog.message))
    shown.page.goto(own + fragment)
    # No wait_for_function: the page's policy forbids what it is made of.
    end = time.monotonic() + _PATIENCE_S
    while not shown.page.evaluate("() => performance.getEntriesByName('kprof:ready').length"):
        assert time.monotonic() < end, shown.errors
        time.sleep(0.01)
    return shown
