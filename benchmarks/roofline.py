"""The roofline of a machine with ccrank and its baseline on it, from the numbers of `benchmarks/reading.py`.

    python benchmarks/reading.py --json build/reading.json
    python -m benchmarks.roofline build/reading.json --page docs/explanation/speed.md --figure docs/images/roofline.png

A pass reads every weight of the layers once, so a pass of T tokens does 2T operations per weight of 4 bytes: T/2
operations per byte (T in bfloat16). Below the slanted line the memory limits, below the level ones the products.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from studies.common.sections import fill_sections

NAMES = {"wikilists": "WikiLists", "entsalience": "EntSalience"}
READERS = {
    "ccrank, float32": ("ccrank, float32", "tab:blue", "o"),
    "ccrank, bfloat16": ("ccrank, bfloat16", "tab:green", "o"),
    "padded": ("transformers, padded", "0.5", "s"),
    "padded, medium": ("transformers, padded, with the same kernel", "tab:orange", "s"),
}
"""Reader → its name, color and mark."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("numbers", type=Path, help="what reading.py wrote with --json")
    parser.add_argument("--page", type=Path, help="a page whose generated sections are filled")
    parser.add_argument("--figure", type=Path, help="where the figure is written")
    arguments = parser.parse_args()
    found = json.loads(arguments.numbers.read_text())
    if arguments.page:
        text = arguments.page.read_text()
        arguments.page.write_text(
            fill_sections(text, found, {"machine": machine_table, "reading": reading_table})
        )
    else:
        print(machine_table(found), reading_table(found), sep="\n\n")
    if arguments.figure:
        draw(found, arguments.figure)


def machine_table(found: Mapping[str, Any]) -> str:
    """What the machine can do."""
    rates = found["machine"]
    rows = [
        ("float32 products by PyTorch's default kernel", f"{rates['torch float32 GFLOP/s']:.0f} GFLOP/s"),
        (
            "float32 products by the kernel that ccrank takes",
            f"{rates['fastest float32 GFLOP/s']:.0f} GFLOP/s",
        ),
        ("bfloat16 products", f"{rates['bfloat16 GFLOP/s']:.0f} GFLOP/s"),
        ("reading from memory", f"{rates['memory GB/s']:.0f} GB/s"),
    ]
    lines = [
        f"| threads: {rates['threads']} | rate |",
        "|---|---|",
        *(f"| {name} | {rate} |" for name, rate in rows),
    ]
    return "\n".join(lines)


def reading_table(found: Mapping[str, Any]) -> str:
    """Times of each reader, relative to ccrank in float32."""
    lines = [
        "| pairwise prompts of | reader | tokens computed | wall time | CPU time | wall, of ccrank's "
        "| distinct tokens/s | of peak | largest difference |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        own = next(
            one
            for one in found["rows"]
            if one["dataset"] == row["dataset"] and one["reader"] == "ccrank, float32"
        )
        difference = "" if row is own else f"{row['difference']:.0e}"
        lines.append(
            f"| {NAMES[row['dataset']]} | {READERS[row['reader']][0]} | {row['computed_tokens']:,} "
            f"| {row['seconds']:.1f} s | {row['cpu_seconds']:.1f} s | {row['seconds'] / own['seconds']:.1f} "
            f"| {row['distinct_tokens'] / row['seconds']:,.0f} | {row['of_peak']:.0%} | {difference} |"
        )
    return "\n".join(lines)


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Useful and computed GFLOP/s of each reader against operations per byte of weights."""
    from matplotlib.figure import Figure

    rates = found["machine"]
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    intensity = np.logspace(0, 3.6, 200)
    for name, label, style in (
        ("torch float32 GFLOP/s", "float32, PyTorch's default kernel", "--"),
        ("fastest float32 GFLOP/s", "float32, fastest exact kernel", "-"),
        ("bfloat16 GFLOP/s", "bfloat16", ":"),
    ):
        axes.plot(
            intensity,
            np.minimum(rates[name], rates["memory GB/s"] * intensity),
            f"k{style}",
            lw=1,
            label=label,
        )
    for row in found["rows"]:
        label, color, mark = READERS[row["reader"]]
        bytes_per_weight = 2 if "bfloat16" in row["reader"] else 4
        per_byte = 2 * row["computed_tokens"] / row["passes"] / bytes_per_weight
        useful, computed = (
            row["operations_per_token"] * row[tokens] / row["seconds"] / 1e9
            for tokens in ("distinct_tokens", "computed_tokens")
        )
        # Filled: work that had to be done. Hollow: with what is computed again or for padding.
        first = row["dataset"] == found["rows"][0]["dataset"]
        axes.plot([per_byte, per_byte], [useful, computed], color=color, lw=0.8)
        axes.plot(per_byte, computed, mark, color=color, mfc="white", ms=6)
        axes.plot(per_byte, useful, mark, color=color, ms=6, label=label if first else None)
        axes.annotate(
            NAMES[row["dataset"]], (per_byte, useful), fontsize=6, xytext=(5, -3), textcoords="offset points"
        )
    axes.set(xscale="log", yscale="log", xlabel="operations per byte of weights", ylabel="GFLOP/s")
    axes.set_ylim(1, 1.6 * rates["bfloat16 GFLOP/s"])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
