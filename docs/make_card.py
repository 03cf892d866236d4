"""Makes docs/images/card.png, the picture that is shown beside links to the site: the logo, the sentence and a ranking.

python docs/make_card.py        # or make recording; needs the extra `dev` and Chromium
"""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
ICON = (ROOT / "src" / "ccrank" / "server" / "page" / "icon.svg").read_text(encoding="utf-8")
ITEMS = (("broccoli", 1.37), ("apple", 0.57), ("rice", 0.32), ("pizza", -0.87), ("candy", -1.39))
"""The first example of the README."""
STYLE = """
body { margin: 0; padding: 60px 80px; font: 34px system-ui, sans-serif; color: #17212b; width: 1040px }
h1 { display: flex; align-items: center; gap: 28px; font-size: 84px; margin: 0 0 18px } svg { width: 96px }
p { margin: 0 0 40px } table { font: inherit; border-spacing: 0 9px } td:first-child { width: 220px }
td div { height: 30px; background: #08519c; border-radius: 15px }
"""


def html() -> str:
    """The card as a page."""
    rows = "".join(
        f"<tr><td>{name}</td><td><div style='width: {40 + 230 * (score + 1.39):.0f}px'></div></td></tr>"
        for name, score in ITEMS
    )
    sentence = "Rank any list by any criterion with a small language model, without labels."
    return f"<style>{STYLE}</style><h1>{ICON} ccrank</h1><p>{sentence}</p><table>{rows}</table>"


def main() -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--disable-gpu"])
        page = browser.new_page(viewport={"width": 1200, "height": 630})
        page.set_content(html())
        page.screenshot(path=ROOT / "docs" / "images" / "card.png")
        browser.close()


if __name__ == "__main__":
    main()
