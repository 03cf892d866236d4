"""How fast the page is on this machine: until it can be used, and until 30 items are ranked, on the default model.

    python benchmarks/page.py [--rounds 5]

Starts `ccrank serve` without a cache on a free port and opens the page in Chromium. Every ranking has another
criterion, so that none is answered from what was read before. Prints medians, the slowest, the
server's processor time, which other work on the machine changes little, and the machine's load.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import ccrank

CRITERIA = ("healthiest", "price", "sweetness", "weight", "popularity", "softness", "age", "danger", "beauty")
"""One for the warm-up, then one for each round."""
FILES = Path(ccrank.__file__).parent / "server" / "page"


@contextmanager
def serving() -> Iterator[tuple[str, int]]:
    """`ccrank serve` on a free port; its address and its process, once it is ready."""
    command = [sys.executable, "-m", "ccrank", "serve", "--port", "0", "--no-cache"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            for line in server.stderr:
                if found := re.search(r"http://\S+", line):
                    yield found[0], server.pid
                    break
            else:
                raise SystemExit("the server did not start")
        finally:
            server.terminate()


def processor_seconds(process: int) -> float:
    """Seconds of processor time that a process has used; NaN where that is not known."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.nan
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def usable(page: Page, address: str) -> float:
    """Seconds from the request for the page until a criterion can be typed and ranked."""
    start = time.perf_counter()
    page.goto(address)
    page.wait_for_selector("html[data-ready=all]")
    page.fill("#by", "s")
    return time.perf_counter() - start


def ranked(page: Page, by: str) -> float:
    """Seconds from the click on Rank until the final order is shown."""
    page.fill("#by", by)
    start = time.perf_counter()
    page.click("#rank")
    page.wait_for_selector("#rows:not(.final)", state="attached")
    page.wait_for_selector("#rows.final")
    return time.perf_counter() - start


def items() -> str:
    """The 30 foods of the page's second example."""
    source = (FILES / "examples.js").read_text(encoding="utf-8")
    found = re.search(r'lines\("(broccoli[^"]*)"', source)
    assert found is not None
    return found[1].replace(", ", "\n")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, choices=range(1, len(CRITERIA)))
    rounds = parser.parse_args().rounds
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with serving() as (address, process), sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--disable-gpu"])
        opening = []
        for _ in range(rounds):
            page = browser.new_context().new_page()  # nothing cached
            page.set_default_timeout(300_000)
            opening.append(usable(page, address))
        page.fill("#items", items())
        page.fill("#category", "food")
        ranked(page, CRITERIA[0])
        before = processor_seconds(process)
        ranking = [ranked(page, by) for by in CRITERIA[1 : rounds + 1]]
        spent = (processor_seconds(process) - before) / rounds
        browser.close()
    script = sum(path.stat().st_size for path in FILES.glob("*.js"))
    print(f"usable: median {statistics.median(opening):.2f} s, slowest {max(opening):.2f} s")
    print(f"30 items ranked: median {statistics.median(ranking):.2f} s, slowest {max(ranking):.2f} s")
    print(f"processor time of the server for each: {spent:.2f} s")
    print(f"script: {script / 1000:.1f} kB before compression")
    print(f"load: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
