"""Gather the pages of the site in build/pages: those of docs/, the studies' pages, and the pages that are generated.

    python docs/make_site.py

`make docs` runs it before the site is built. Pages keep the links that work in the repository; here they are turned
into links between the pages of the site. Generated are the reference of the command line (from the commands
themselves) and `llms.txt`, the list of all pages for language models.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import typer

from ccrank.cli.commands import app

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
COMMANDS = "docs/reference/cli.md"
"""Where the generated reference of the commands would be if it were a file of the repository."""
COPIED = (".md", ".png", ".apng", ".svg")
ICON = ROOT / "src" / "ccrank" / "server" / "page" / "icon.svg"
"""The logo and the favicon are those of the server's page."""
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def site_path(name: str) -> str | None:
    """The place in the site of a file of the repository: `docs/how-to/x.md` → `how-to/x.md`."""
    if name == "CHANGELOG.md":
        return "reference/changelog.md"
    if name.endswith(ICON.name):
        return f"images/{ICON.name}"
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return name if name.startswith(("studies/", "benchmarks/")) else None


def relinked(text: str, source: str) -> str:
    """The text of a page with its relative links turned into links between pages of the site."""

    def replaced(link: re.Match[str]) -> str:
        path, hash_, anchor = link[2].partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return link[0]
        target = site_path(os.path.normpath(Path(source).parent / path))
        start = site_path(source)
        if target is None or start is None:
            raise SystemExit(f"{source}: {link[2]} is not part of the site")
        return f"{link[1]}{os.path.relpath(target, Path(start).parent)}{hash_}{anchor}{link[3]}"

    return LINK.sub(replaced, text)


def sources() -> Iterator[Path]:
    """The files that the site takes over as they are."""
    yield ROOT / "CHANGELOG.md"
    for folder in (ROOT / "docs", ROOT / "studies", ROOT / "benchmarks"):
        yield from (path for path in sorted(folder.rglob("*")) if path.suffix in COPIED)
    yield ICON


# the commands ---------------------------------------------------------------------------------------------------------


def plain(text: str | None) -> str:
    """Help text without the markup of the terminal, in one line, safe in a cell of a table."""
    return " ".join(re.sub(r"\[/?(?:bold|dim|italic)\]", "", text or "").split()).replace("|", "\\|")


def command_pages(command: click.Command, name: str) -> Iterator[str]:
    """A section for a command and, below it, for each of its own commands."""
    if getattr(command, "hidden", False):
        return
    text = re.sub(r"\[/?(?:bold|dim|italic)\]", "", command.help or "")
    about, *more = re.split(r"\n\s*\n", text.strip())
    yield f"\n## {name}\n\n{' '.join(about.split())}\n"
    for part in more:
        lines = [line.strip() for line in part.strip("\b\n").splitlines() if line.strip() != "\b"]
        code = [line for line in lines if line.startswith("ccrank ")]
        yield "\n```bash\n" + "\n".join(code) + "\n```\n" if code else f"\n{' '.join(lines)}\n"
    rows = [row for one in command.params if (row := parameter_row(one))]
    if rows:
        yield "\n| argument or flag | meaning |\n| --- | --- |\n" + "\n".join(rows) + "\n"
    for child, one in getattr(command, "commands", {}).items():
        yield from command_pages(one, f"{name} {child}")


def parameter_row(parameter: click.Parameter) -> str | None:
    """A row of the table of flags; None if the parameter is hidden or the completion of the shell."""
    if getattr(parameter, "hidden", False) or parameter.name in ("install_completion", "show_completion"):
        return None
    help_text = plain(getattr(parameter, "help", None))
    if isinstance(parameter, click.Argument):
        return f"| `{parameter.human_readable_name}` | {help_text} |"
    flags = ", ".join(f"`{one}`" for one in [*parameter.opts, *parameter.secondary_opts])
    default = parameter.default
    shown = default not in (None, False, (), [], "") and not callable(default)
    return f"| {flags} | {help_text}{f' Default: `{default}`.' if shown else ''} |"


def command_reference() -> str:
    """The page about the command line, from the commands themselves."""
    root = typer.main.get_command(app)
    intro = (
        "# Command line\n\nHere you look up every command and flag. "
        "The page is generated from the commands; `ccrank COMMAND --help` shows the same on the terminal.\n"
    )
    return intro + "".join(
        part for name, one in root.commands.items() for part in command_pages(one, f"ccrank {name}")
    )


# all pages ------------------------------------------------------------------------------------------------------------


def index_for_models(pages: dict[str, str]) -> str:
    """llms.txt: the title and the first sentence of each page, with its address."""
    lines = [
        "# ccrank",
        "",
        "> Rank any list of items by any criterion with a language model, without labels.",
        "",
    ]
    for place, text in sorted(pages.items(), key=lambda one: (one[0].count("/"), one[0])):
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        paragraphs = [one for one in re.split(r"\n\s*\n", text) if one.strip() and one[0] not in "#<!`|-["]
        first = (
            re.split(r"(?<=[.?]) ", " ".join(paragraphs[0].split()).replace("**", ""))[0]
            if paragraphs
            else ""
        )
        address = re.sub(r"(?:(^|/)(?:index|README))?\.md$", "/", place)
        lines.append(f"- [{title[1] if title else place}]({address.lstrip('/') or './'}): {first}")
    return "\n".join(lines) + "\n"


def main() -> None:
    shutil.rmtree(PAGES, ignore_errors=True)
    pages: dict[str, str] = {}
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        place = site_path(name)
        assert place is not None
        target = PAGES / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            pages[place] = relinked(path.read_text(encoding="utf-8"), name)
            target.write_text(pages[place], encoding="utf-8")
        else:
            shutil.copyfile(path, target)
    place = site_path(COMMANDS)
    assert place is not None
    pages[place] = command_reference()
    (PAGES / place).write_text(pages[place], encoding="utf-8")
    (PAGES / "llms.txt").write_text(index_for_models(pages), encoding="utf-8")


if __name__ == "__main__":
    main()
