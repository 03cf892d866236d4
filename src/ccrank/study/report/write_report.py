"""Writing the report of a study: read its folder, draw its figures, write one self-contained page."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from ccrank.errors import CcrankError
from ccrank.metrics.retrieval import have_measures
from ccrank.study.report.figures_bars import figure_across, figure_datasets, figure_main
from ccrank.study.report.figures_points import figure_consistency, figure_cost, figure_layers, figure_scales
from ccrank.study.report.figures_style import image_bytes
from ccrank.study.report.page_data import headlines, pack_rankings, script_json
from ccrank.study.results import load as files
from ccrank.study.results.summary import INTERVALS, UNIT, add_relevance, main_setting, one_layer, summarise
from ccrank.study.results.tables import METHOD, RESULTS, Field, used
from ccrank.util.files import folder_errors, parse_toml, write_atomically
from ccrank.util.text import encodable

DRAWINGS: dict[str, Callable[[pd.DataFrame, files.StudyTasks], Figure | None]] = {
    "main": lambda results, tasks: figure_main(results),
    "datasets-tau": lambda results, tasks: figure_datasets(results, "abs_tau"),
    "datasets-accuracy": lambda results, tasks: figure_datasets(results, "free_accuracy"),
    "across-tasks": lambda results, tasks: figure_across(results),
    "scales": figure_scales,
    "layers": lambda results, tasks: figure_layers(results),
    "cost": lambda results, tasks: figure_cost(results),
    "consistency": lambda results, tasks: figure_consistency(results),
}
"""The figures by name, each from results and tasks; None if the study has no data for it."""
MAX_ROWS = 1000
"""Maximal number of rows of a table on the page; the rest is in summary.csv."""
MAX_FAILURES = 500
MAX_FIGURE_BYTES = 260_000
"""Larger images are drawn at a lower resolution."""
MAX_ALL_FIGURES_BYTES = 1_400_000
"""Images beyond this total are not embedded, only linked as files."""
MEDIA_TYPES = {"svg": "image/svg+xml", "png": "image/png", "pdf": ""}
"""Of images on the page, by format; each figure is written in all formats."""


def write_report(out_dir: Path) -> Path:
    """Write report.html, figures/ and summary.csv into a study's folder; returns the path of the page."""
    folder = Path(out_dir)
    path = folder / files.RESULTS
    if not path.is_file():
        raise CcrankError(f"{folder} has no {files.RESULTS}; run `ccrank bench --out {folder}` first")
    results = files.load_results(folder)
    if results.empty:
        raise CcrankError(f"{path} has no rows; nothing was ranked (see {files.FAILURES} in the same folder)")
    tasks, failures = files.load_tasks(folder), files.load_failures(folder)
    main = summarise(one_layer(results))
    table = summarise(results, intervals=False)  # hundreds of rows for single layers would take minutes
    with_intervals = table.join(main.set_index(UNIT)[INTERVALS].assign(main_layer=True), on=UNIT)
    with_intervals["main_layer"] = with_intervals["main_layer"].notna()
    summary = with_intervals.drop(columns="n_items").to_csv(index=False)
    write_atomically(folder / "summary.csv", encodable(summary))
    html = page_template().render(
        **_page_data(results, tasks, main),
        name=folder.resolve().name,
        several_layers=len(main) < len(table),
        figures=draw_figures(results, tasks, folder / "figures"),
        failures=_failures_table(failures[:MAX_FAILURES]),
        failed=len(failures),
        config=files.read_text_file(folder / files.CONFIG),
        environment=files.load_environment(folder),
    )
    page = folder / "report.html"
    write_atomically(page, encodable(html))
    return page


def draw_figures(results: pd.DataFrame, tasks: files.StudyTasks, folder: Path) -> list[dict[str, Any]]:
    """Draw every figure that the study has data for, write it as PNG, PDF and SVG, and return what the page needs of
    it: the source is the smaller of SVG and PNG as an embedded image, empty if it would be too much."""
    texts = parse_toml(resources.files("ccrank.study.report") / "figures.toml")
    band = texts["shared"]["band"]
    bars = texts["shared"]["bars"].format(band=band)
    with folder_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    drawn, total = [], 0
    for name, draw in DRAWINGS.items():
        if (figure := draw(results, tasks)) is None:
            continue
        images = {form: image_bytes(figure, form) for form in MEDIA_TYPES}
        for form, content in images.items():
            write_atomically(folder / f"{name}.{form}", content)
        form = min("svg", "png", key=lambda form: len(images[form]))
        if len(images[form]) > MAX_FIGURE_BYTES:
            form, images["png"] = "png", image_bytes(figure, "png", dpi=110)
        total += len(images[form])
        encoded = base64.b64encode(images[form]).decode() if total <= MAX_ALL_FIGURES_BYTES else ""
        width, height = (round(100 * length) for length in figure.get_size_inches())
        drawn.append(
            {
                "name": name,
                "title": texts["figures"][name]["title"],
                "caption": texts["figures"][name]["caption"].format(band=band, bars=bars),
                "width": width,
                "height": height,
                "source": encoded and f"data:{MEDIA_TYPES[form]};base64,{encoded}",
            }
        )
    return drawn


def page_template(name: str = "page.html.jinja") -> Any:
    """A template of the report, which escapes the study's text."""
    environment = Environment(
        loader=PackageLoader("ccrank.study", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = _plain
    return environment.get_template(name)


def _page_data(results: pd.DataFrame, tasks: files.StudyTasks, table: pd.DataFrame) -> dict[str, Any]:
    """What the page shows of results; `table` is their summary of one layer per method."""
    script, style = (
        resources.files("ccrank.study.report").joinpath(name).read_text(encoding="utf-8")
        for name in ("page.js", "page.css")
    )
    rankings = pack_rankings(results, tasks)
    kinds = summarise(main_setting(results), "kind")
    rows: list[dict[str, Any]] = table.to_dict("records")
    if have_measures():
        rows = add_relevance(rows, one_layer(results), tasks)
    return {
        "script": Markup(script),
        "style": Markup(style),
        "script_hash": _hash(script),
        "style_hash": _hash(style),
        "counts": {
            "task": len(results.drop_duplicates(["dataset", "task"])),
            **{name: int(results[name].nunique()) for name in ("dataset", "model", "method", "seed")},
        },
        "headlines": headlines(table),
        "kinds": _table(_columns("kind"), kinds[kinds["graded"] > 0].to_dict("records")),
        "summary": _table(_columns("dataset"), rows[:MAX_ROWS]),
        "rows_left_out": max(0, len(table) - MAX_ROWS),
        "rankings": rankings,
        "packed": Markup(script_json(rankings)),
    }


def _columns(by: str) -> list[Field]:
    names = (Field("family", drop=4, key="family"), Field("model", key="model"), Field(by, key=by))
    return [METHOD, *names, *(column for column in RESULTS if column is not METHOD)]


def _table(columns: Sequence[Field], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What the template needs of a table; None without rows. A phone shows the columns that a narrow terminal keeps,
    and the model where there are several."""
    one_model = len({row.get("model") for row in rows}) == 1
    columns = used(columns, rows)
    minor = [column.drop > 0 or (column.key == "model" and one_model) for column in columns]
    return {"columns": columns, "minor": minor, "rows": rows} if rows else None


def _failures_table(failures: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    keys = dict.fromkeys(str(key) for failure in failures for key in failure)
    rows = [{key: _plain(failure.get(key))[:600] for key in keys} for failure in failures]
    return _table([Field(key, key=key) for key in keys], rows)


def _plain(value: object) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
