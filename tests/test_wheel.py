"""The package as users install it: what it declares, what is in the wheel, and that it runs outside this repository."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from tiny import tiny_model

from ccrank.util.files import parse_toml
from ccrank.version import __version__

ROOT = Path(__file__).parents[1]
MODULES = {
    "huggingface_hub": "huggingface-hub",
    "ir_measures": "ir-measures",
    "prometheus_client": "prometheus-client",
    "sklearn": "scikit-learn",
}
"""Names of imports that differ from the name of their distribution."""
UNDECLARED = {"tomllib", "polars", "typing_extensions"}
"""Python's own, what is imported only where it is installed, and what only type checkers import."""


def project() -> dict:
    return parse_toml(ROOT / "pyproject.toml")


def imported() -> set[str]:
    """The top-level modules that the package imports anywhere."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {one.name.partition(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"ccrank", "__future__"}


def test_every_import_is_declared() -> None:
    """An empty environment gets all that the package imports: each module is a dependency or belongs to an extra."""
    about = project()["project"]
    extras = about["optional-dependencies"]
    users = [one for name, extra in extras.items() if name not in ("dev", "docs") for one in extra]
    names = {re.split(r"[^\w-]", one, maxsplit=1)[0].lower() for one in [*about["dependencies"], *users]}
    assert {MODULES.get(name, name) for name in imported()} <= names | UNDECLARED


def test_there_is_one_version() -> None:
    """The package's metadata take the version from version.py, and CITATION.cff and CHANGELOG.md have the same."""
    about = project()
    assert "version" not in about["project"]
    assert about["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "ccrank.version.__version__"}
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that WHEEL names, or one built from a copy of the source, into which no earlier build leaks."""
    if given := os.environ.get("WHEEL"):
        return (ROOT / given).resolve()
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, source)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with the wheel in it; it sees this environment's dependencies, not its ccrank."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / ("python.exe" if os.name == "nt" else "python")
    pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip())
    # The .pth files of a folder that is added like this are not read: an editable ccrank there stays invisible.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return scripts


def pip(*arguments: object) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def run(scripts: Path, folder: Path, *arguments: object, **settings: str) -> str:
    """A command of an environment, run away from the repository and without its settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CCRANK"))}
    done = subprocess.run(
        [scripts / arguments[0], *map(str, arguments[1:])],
        cwd=folder,
        env={**kept, "OMP_NUM_THREADS": "1", "CCRANK_CACHE": str(folder / "cache"), **settings},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_has_the_package_and_its_data(wheel: Path) -> None:
    """Every file of src/ccrank is in the wheel, templates, page and typing marker included, and nothing else is."""
    names = set(zipfile.ZipFile(wheel).namelist())
    source = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "ccrank").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == source
    assert {"ccrank/py.typed", "ccrank/prompts/templates.toml"} <= names
    for suffix in (".jinja", ".js", ".css"):
        assert any(name.endswith(suffix) for name in names)
    assert wheel.name.startswith(f"ccrank-{__version__}-")


@pytest.mark.slow
def test_the_wheel_runs_in_a_fresh_environment(environment: Path, tmp_path: Path) -> None:
    """`ccrank` is installed as a command, reports its version, shows help and ranks, away from the repository."""
    assert run(environment, tmp_path, "ccrank", "--version").strip() == f"ccrank {__version__}"
    assert "--by" in run(environment, tmp_path, "ccrank", "rank", "--help")
    where = run(environment, tmp_path, "python", "-c", "import ccrank; print(ccrank.__file__)").strip()
    assert Path(where).is_relative_to(environment.parent)
    printed = run(environment, tmp_path, *ranking(tmp_path))
    assert {row["item"] for row in json.loads(printed)["items"]} == {"Peru", "Chad"}


def ranking(folder: Path) -> list[object]:
    """A `ccrank rank` with a model that is made in the folder."""
    loaded = tiny_model("llama", max_position_embeddings=512)
    loaded.model.save_pretrained(folder / "tiny-llama")
    loaded.tokenizer.save_pretrained(folder / "tiny-llama")
    return ["ccrank", "rank", "Peru", "Chad", "--by", "size", "-m", folder / "tiny-llama", "--json"]


@pytest.mark.slow
def test_uvx_runs_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """`uvx --from WHEEL ccrank rank …` ranks in an environment that has nothing but what the wheel asks for."""
    scripts = Path(sys.executable).parent
    if not shutil.which("uv", path=scripts):
        pytest.skip("uv is not in this environment")
    # uv reads no configuration of pip; without this it would not see a CPU build of torch that pip finds.
    local = {"UV_FIND_LINKS": os.environ["PIP_FIND_LINKS"]} if "PIP_FIND_LINKS" in os.environ else {}
    locked = ["--isolated", "--python", sys.executable, "--constraints", ROOT / "requirements" / "lock.txt"]
    printed = run(
        scripts, tmp_path, "uv", "tool", "run", *locked, "--from", wheel, *ranking(tmp_path), **local
    )
    assert {row["item"] for row in json.loads(printed)["items"]} == {"Peru", "Chad"}
