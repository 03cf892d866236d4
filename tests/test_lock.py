"""requirements/lock.txt: the exact versions that the Makefile installs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from ccrank.util.files import parse_toml

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements" / "lock.txt"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
PLATFORMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix"},
    "macos": {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64", "os_name": "posix"},
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "platform_machine": "AMD64", "os_name": "nt"},
}  # fmt: skip
NOT_LOCKED = {"ccrank", "pip", "wheel"}
"""The project itself, and what `venv` and `uv venv --seed` put into a new environment."""


def requirements(path: Path) -> list[Requirement]:
    lines = path.read_text("utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def environment(python: str, platform: str = "linux") -> dict[str, str]:
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        **PLATFORMS[platform],
    }


def applies(one: Requirement, where: Mapping[str, str]) -> bool:
    return one.marker is None or one.marker.evaluate({**where, "extra": ""})


def pinned(pins: Iterable[Requirement], where: Mapping[str, str]) -> dict[str, Version]:
    """The version of each package in an environment."""
    found: dict[str, Version] = {}
    for pin in pins:
        if applies(pin, where):
            [exact] = pin.specifier
            assert exact.operator == "=="
            assert canonicalize_name(pin.name) not in found, f"{pin.name} has two versions"
            found[canonicalize_name(pin.name)] = Version(exact.version)
    return found


def wanted() -> list[Requirement]:
    """Every dependency and every extra of pyproject.toml, and the clients that `make clients` adds."""
    about = parse_toml(ROOT / "pyproject.toml")["project"]
    extras = about["optional-dependencies"].values()
    lines = [*about["dependencies"], *(one for extra in extras for one in extra)]
    return [*map(Requirement, lines), *requirements(ROOT / "requirements" / "clients.txt")]


def outside(
    ranges: Iterable[Requirement], versions: Mapping[str, Version], where: Mapping[str, str]
) -> list[str]:
    """The requirements that the pinned versions do not meet: no version, or one out of range."""
    return [
        str(one)
        for one in ranges
        if one.name != "ccrank"
        and applies(one, where)
        and not (
            canonicalize_name(one.name) in versions
            and one.specifier.contains(versions[canonicalize_name(one.name)], prereleases=True)
        )
    ]


def drifted(installed: Mapping[str, str], versions: Mapping[str, Version]) -> list[str]:
    """What is installed and is not in the lock, or has another version there. The build of torch may have a suffix."""
    return sorted(
        f"{name} {version}"
        for name, version in installed.items()
        if name not in NOT_LOCKED
        and (name not in versions or Version(Version(version).public) != versions[name])
    )


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_is_within_the_ranges_of_the_project(python: str, platform: str) -> None:
    """Everything that is wanted has one exact version, which its range admits."""
    where = environment(python, platform)
    assert outside(wanted(), pinned(requirements(LOCK), where), where) == []


def test_a_contradiction_of_lock_and_ranges_is_found() -> None:
    """A version out of range and a package without a pin are named; one for another Python is not missed."""
    where = environment("3.12")
    versions = {"some-package": Version("1.4"), "new": Version("3.0rc1")}
    ranges = map(
        Requirement,
        ["some.package>=1.5", "Some_Package>=1.4", "none", "old; python_version < '3.11'", "new>=2"],
    )
    assert outside(ranges, versions, where) == ["some.package>=1.5", "none"]


def test_the_lock_names_no_index() -> None:
    """Whoever installs under the lock uses the package index of his own configuration."""
    assert not re.search(r"://|--(extra-)?index|--find-links", LOCK.read_text("utf-8"))


def test_what_is_installed_is_in_the_lock() -> None:
    """An environment that the Makefile made under the lock has its versions and nothing beside them."""
    marker = Path(sys.prefix) / "dev"
    if not marker.exists() or marker.read_text("utf-8").strip() != "requirements/lock.txt":
        pytest.skip("this environment was not made under the lock by `make test`")
    here = {
        canonicalize_name(one.metadata["Name"]): one.version
        for one in distributions()
        if Path(sys.prefix).resolve() in Path(str(one.locate_file(""))).resolve().parents
    }
    assert "torch" in here
    assert drifted(here, pinned(requirements(LOCK), dict(default_environment()))) == []


def test_what_is_not_in_the_lock_is_found() -> None:
    """A package that is not in the lock and one of another version are named; a CPU build of torch is not."""
    versions = {"torch": Version("2.13.0"), "six": Version("1.17.0")}
    assert drifted({"torch": "2.13.0+cpu", "six": "1.17.0", "pip": "26"}, versions) == []
    assert drifted({"torch": "2.13.1", "six": "1.17", "uv": "1.0"}, versions) == ["torch 2.13.1", "uv 1.0"]


def test_actions_are_pinned_to_commits() -> None:
    """A tag can be moved to other code; a commit cannot. Its version is in a comment."""
    lines = [
        line
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
        for line in path.read_text("utf-8").splitlines()
        if "uses:" in line
    ]
    assert lines
    assert [
        one for one in lines if not re.search(r"uses: [\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", one)
    ] == []


def test_install_lines_work_in_a_clone() -> None:
    """Until there is a release, no page and no message installs ccrank from a package index, and every extra exists."""
    extras = parse_toml(ROOT / "pyproject.toml")["project"]["optional-dependencies"]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for path in [*pages, *(ROOT / "src").rglob("*.py")]:
        text = path.read_text("utf-8")
        assert not re.search(r"(pip install|uvx|pipx run) '?ccrank", text), path
        assert {one for one in re.findall(r"'\.\[([a-z]+)\]'", text) if one not in extras} == set(), path
