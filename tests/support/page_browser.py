"""A server in a thread and its page in a browser: for the tests of the page and for the pictures in the docs."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from chromium import PATIENCE
from fastapi import FastAPI

ROOT = Path(__file__).parents[2]


def page_tool(path: str) -> Path | None:
    """A file of the page's development tools, which `make page-tools` installs; None where there are none.

    Parameters
    ----------
    path
        Below node_modules.
    """
    folder = Path(os.environ.get("CCRANK_PAGE_TOOLS") or ROOT / "build" / "page-tools")
    found = folder / "node_modules" / path
    return found if found.exists() else None


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """Serve an application on a free port of this machine; its address.

    Parameters
    ----------
    app
        The application.
    """
    bound = socket.create_server(("127.0.0.1", 0))  # kept open, so that no other process gets the port
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.02)
    assert server.started
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(PATIENCE / 1000)
        assert not thread.is_alive()


@dataclass
class Opened:
    """The page in a tab, and what the browser noticed while it was open."""

    page: Any
    address: str
    complaints: list[str] = field(default_factory=list)
    """Errors and warnings of the console, exceptions, and violations of the page's policy."""
    requests: list[str] = field(default_factory=list)
    """Addresses that were asked for."""

    def order(self) -> list[str]:
        """The items as they are shown, best first."""
        return list(self.page.locator("#rows .item").all_text_contents())

    def type(self, items: list[str], by: str, **more: str) -> None:
        """Fill the form."""
        self.page.fill("#items", "\n".join(items))
        self.page.fill("#by", by)
        for name, value in more.items():
            self.page.fill(f"#{name}", value)

    def rank(self) -> list[str]:
        """Press Rank and wait for the order."""
        self.page.click("#rank")
        self.wait_final()
        return self.order()

    def wait_final(self) -> None:
        """Wait until a ranking is complete and nothing is under way."""
        self.page.wait_for_selector("#rows.final .row")
        self.page.wait_for_selector("#cancel", state="hidden")

    def wait_still(self) -> None:
        """Wait until nothing moves or changes its colour any more; a busy machine draws the frames of that late."""
        running = "document.getAnimations().some(one => one.playState === 'running' || one.pending)"
        end = time.monotonic() + PATIENCE / 1000
        while self.page.evaluate(running):
            assert time.monotonic() < end, "something still moves"
            self.page.wait_for_timeout(20)

    def wait_taught(self, said: int) -> None:
        """Wait until the order holds so many things that were said."""
        self.page.wait_for_selector(f".said summary:has-text('({said})')")
        self.page.wait_for_selector("#teach[aria-busy=false]")


def open_page(browser: Any, address: str, width: int = 1280, dark: bool = False, **more: Any) -> Opened:
    """The page in a new window.

    Parameters
    ----------
    browser
        A browser.
    address
        The server's address, which may have a path and a fragment.
    width, dark
        Of the window.
    **more
        For the browser's context.
    """
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        accept_downloads=True,
        **more,
    )
    context.set_default_timeout(PATIENCE)
    opened = Opened(context.new_page(), address)
    opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.page.on(
        "console",
        lambda said: opened.complaints.append(said.text) if said.type in ("error", "warning") else None,
    )
    opened.page.on("request", lambda sent: opened.requests.append(sent.url))
    opened.page.goto(address, wait_until="load")
    opened.page.wait_for_selector("html[data-ready=all]")
    return opened
