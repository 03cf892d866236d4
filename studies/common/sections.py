"""Sections of a page that a program writes.

A section stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->`; everything else on the page is prose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Sections = Mapping[str, Callable[[Mapping[str, Any]], str]]
_SECTION = re.compile(r"<!-- generated: ([\w-]+) -->\n.*?<!-- end: \1 -->", re.DOTALL)


def fill_sections(text: str, data: Mapping[str, Any], sections: Sections) -> str:
    """The page with every generated section made anew."""
    present = set(_SECTION.findall(text))
    unknown, missing = present - {*sections}, {*sections} - present
    if unknown or missing:
        raise ValueError(f"the page has unknown sections {sorted(unknown)} or lacks {sorted(missing)}")
    return _SECTION.sub(lambda found: section_with_markers(found[1], data, sections), text)


def section_with_markers(name: str, data: Mapping[str, Any], sections: Sections) -> str:
    """One section with its markers."""
    return f"<!-- generated: {name} -->\n{sections[name](data).strip()}\n<!-- end: {name} -->"


def without_sections(text: str) -> str:
    """The prose of a page."""
    return _SECTION.sub("", text)
