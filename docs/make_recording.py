"""Makes docs/images/page.png and docs/images/page.apng: the page of `ccrank serve` on the default model.

    python docs/make_recording.py

Needs the extras `server` and `dev` and Chromium. Starts its own server without a cache, so that items are seen as they
are read.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
SIZE = (1080, 680)
SCALE = 0.8
COLOURS = 112
SECONDS = 20.0
LONGEST = 0.15
"""Seconds that a picture is shown while the page moves by itself: waiting for a busy machine is left out."""
SECOND = "price"
ARROW = [(0, 0), (0, 17), (4, 13), (7, 19), (10, 18), (7, 12), (12, 12)]


@contextmanager
def serving() -> Iterator[str]:
    """`ccrank serve` on a free port; its address."""
    command = [sys.executable, "-m", "ccrank", "serve", "--port", "0", "--no-cache"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            for line in server.stderr:
                if found := re.search(r"http://\S+", line):
                    yield found[0]
                    break
            else:
                raise SystemExit("the server did not start")
        finally:
            server.terminate()


class Recording:
    """Pictures of a page with the times for which they are shown, and the mouse drawn in."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.seconds: list[float] = []
        self.mouse = (SIZE[0] * 0.62, SIZE[1] * 0.8)
        self._last = b""

    @property
    def total(self) -> float:
        """Seconds so far."""
        return sum(self.seconds)

    def show(self, seconds: float) -> None:
        """One picture for so long; nothing where the page has not changed."""
        picture = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        draw = ImageDraw.Draw(picture)
        x, y = self.mouse
        draw.polygon([(x + dx, y + dy) for dx, dy in ARROW], fill="black", outline="white")
        if self.frames and picture.tobytes() == self._last:
            self.seconds[-1] = max(self.seconds[-1], seconds)
            return
        self._last = picture.tobytes()
        self.frames.append(picture.resize([round(side * SCALE) for side in SIZE], Image.Resampling.LANCZOS))
        self.seconds.append(seconds)

    def watch(self, seconds: float, until: str | None = None) -> None:
        """Pictures one after another, for some seconds, or until something is there, which must not take longer."""
        end = time.monotonic() + seconds
        while True:
            late = time.monotonic() > end
            there = until is not None and self.page.locator(until).count() > 0
            self.show(LONGEST)
            if there or (late and until is None):
                return
            if late:
                raise SystemExit(f"{until} is not there after {seconds} s: {self.page.inner_text('#error')}")

    def scroll(self, top: float) -> None:
        """Scroll to a place, once nothing moves any more."""
        self.page.evaluate(
            "() => Promise.all(document.getAnimations().map(one => one.finished)).then(() => 0)"
        )
        self.page.evaluate("top => scrollTo(0, top)", top)
        self.watch(0.4)

    def go(self, target: str | tuple[float, float], steps: int = 5) -> None:
        """Move the mouse to the middle of an element or to a place."""
        if isinstance(target, str):
            box = self.page.locator(target).first.bounding_box()
            target = (box["x"] + min(box["width"] / 2, 60), box["y"] + box["height"] / 2)
        start = self.mouse
        for step in range(1, steps + 1):
            share = step / steps
            self.mouse = tuple(a + (b - a) * share for a, b in zip(start, target, strict=True))  # type: ignore[assignment]
            self.page.mouse.move(*self.mouse)
            self.show(0.07)

    def click(self, target: str) -> None:
        """Move to an element and click it."""
        self.go(target)
        self.page.click(target)

    def type(self, target: str, text: str) -> None:
        """Type a text, a letter at a time."""
        self.click(target)
        for place, letter in enumerate(text):
            self.page.keyboard.type(letter)
            if place % 2:
                self.show(0.16)
        self.watch(0.5)

    def save(self, path: Path) -> None:
        """Write an animated PNG with one palette for all pictures, `SECONDS` long."""
        self.seconds[-1] += max(1.5, SECONDS - self.total)
        faster = SECONDS / self.total
        self.seconds = [one * faster for one in self.seconds]
        some = self.frames[:: max(1, len(self.frames) // 8)]
        sample = Image.new("RGB", (some[0].width, some[0].height * len(some)))
        for place, frame in enumerate(some):
            sample.paste(frame, (0, place * frame.height))
        palette = sample.quantize(COLOURS, method=Image.Quantize.MEDIANCUT)
        pictures = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames]
        pictures[0].save(
            path,
            format="PNG",
            save_all=True,
            append_images=pictures[1:],
            duration=[round(1000 * one) for one in self.seconds],
            loop=0,
            optimize=True,
        )


def foods() -> str:
    """The items of the page's second example."""
    source = Path(__file__).parents[1] / "src/ccrank/server/page/examples.js"
    found = re.search(r'lines\("(broccoli[^"]*)"', source.read_text(encoding="utf-8"))
    assert found is not None
    return found[1].replace(", ", "\n")


def record(page: Any) -> Recording:
    """The story: paste a list, type a criterion, rank, drag an item, answer, compare with a second criterion."""
    recording = Recording(page)
    recording.show(1.0)
    recording.click("#items")
    page.fill("#items", foods())
    recording.show(0.8)
    recording.type("#by", "healthiest")
    recording.show(0.8)
    page.fill("#category", "food")
    recording.click("#rank")
    recording.watch(300, until="#rows.final")
    recording.watch(1.2)
    order = page.locator("#rows .item").all_text_contents()
    recording.scroll(240)
    row = page.locator("#rows .row", has_text="spinach")
    handle = row.locator(".handle").bounding_box()
    top = page.locator("#rows .row").first.bounding_box()
    recording.go((handle["x"] + 8, handle["y"] + 10))
    page.mouse.down()
    recording.go((handle["x"] + 8, top["y"] + 4), steps=12)
    page.mouse.up()
    recording.watch(300, until=".said")
    page.wait_for_selector("#teach[aria-busy=false]")
    recording.watch(1.2)
    recording.scroll(0)
    recording.click("#teach .invite button")
    page.wait_for_selector(".question")
    recording.watch(0.8)
    offered = page.locator(".option span").all_text_contents()
    healthier = min(range(2), key=lambda place: order.index(offered[place]))
    recording.click(f".option >> nth={healthier}")
    page.wait_for_selector(".said summary:has-text('(2)')")
    page.wait_for_selector("#teach[aria-busy=false]")
    recording.watch(1.0)
    recording.click("#tab-criteria")
    recording.type("#second", SECOND)
    page.keyboard.press("Enter")
    page.wait_for_selector("svg.scatter")
    recording.scroll(150)
    return recording


def main() -> None:
    """Make both files."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with serving() as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--disable-gpu"])
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, device_scale_factor=1)
        page.set_default_timeout(120_000)
        page.goto(address)
        page.wait_for_selector("html[data-ready=all]")
        recording = record(page)
        recording.save(IMAGES / "page.apng")
        page.goto("about:blank")
        page.set_viewport_size({"width": 1180, "height": 760})
        page.goto(address)
        page.click(".example >> nth=1")
        page.wait_for_selector("#rows.final")
        page.mouse.move(2, 2)
        page.wait_for_timeout(900)
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        picture.quantize(128, dither=Image.Dither.NONE).save(IMAGES / "page.png", optimize=True)
        browser.close()
    for name in ("page.apng", "page.png"):
        size = (IMAGES / name).stat().st_size
        sys.stdout.write(f"{IMAGES / name}: {size / 1000:.0f} kB\n")
    sys.stdout.write(f"{len(recording.frames)} pictures, {recording.total:.1f} s\n")


if __name__ == "__main__":
    main()
