"""Memory and time of `ccrank rank --input` from 10⁵ to 10⁶ short items with a tiny model, and the loss by a kill.

    python benchmarks/million.py                         # 10⁵ and 10⁶ items
    python benchmarks/million.py --rows 20000 200000     # other sizes
    python benchmarks/million.py --kill                  # the larger job is killed (SIGKILL) twice and resumed
    python benchmarks/million.py --made-up-scores        # the model ranks the sample; other scores are made up

The model is random (a Llama of two layers, 16 wide, with a byte-level tokenizer) and scores every item, so that reading
takes little and what is measured is everything around it. With --made-up-scores it scores the sample alone, and the
pass over all rows takes checksums of the items for scores: reading the file, storing blocks and sorting are as always.
Peak memory is the largest resident set of the process. A resumed output is compared with that of a job that was not
killed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

ADJECTIVES = (
    *("old", "new", "tall", "red", "stone", "glass", "quick", "lazy", "brown"),
    *("blue", "warm", "cold", "rich", "poor", "bright", "dark", "small", "large"),
)
NOUNS = (
    *("fox", "dog", "tower", "bridge", "country", "river", "city", "car", "house"),
    *("tree", "lake", "road", "ship", "stone", "bird", "horse", "hill", "shop"),
)

VOCABULARY = 1000


def make_model(folder: Path) -> Path:
    """A tiny random model with a tokenizer, saved as any model is."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    numbers = [f" {number}" for number in np.random.default_rng(0).integers(0, 10**6, 2000)]
    tokenizer.train_from_iterator([*numbers, *(f" {word}" for word in (*ADJECTIVES, *NOUNS) * 100)], trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=1,
        max_position_embeddings=256,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def write_items(path: Path, rows: int) -> Path:
    """Short items with two further columns, in row groups."""
    generator = np.random.default_rng(0)

    def tables() -> Iterator[pa.Table]:
        for start in range(0, rows, 50_000):
            count = min(50_000, rows - start)
            words = zip(
                generator.choice(ADJECTIVES, count), generator.choice(NOUNS, count), range(start, start + count),
                strict=True,
            )  # fmt: skip
            texts = [f"{adjective} {noun} {number}" for adjective, noun, number in words]
            yield pa.table(
                {"id": range(start, start + count), "text": texts, "price": generator.random(count)}
            )

    with parquet.ParquetWriter(path, next(tables()).schema) as writer:
        for table in tables():
            writer.write_table(table)
    return path


def made_up(model: str, source: str, out: str, method: str) -> None:
    """The command, with an engine that reads nothing."""
    from ccrank import Criterion, Reader
    from ccrank.jobs import StreamOptions, run_job
    from ccrank.jobs.passes import Blocks, Scored
    from ccrank.ranking import ItemScores
    from ccrank.request import RankRequest

    def engine(scale: object, reader: object, blocks: Blocks) -> Scored:
        for number, items in blocks:
            yield number, ItemScores(np.array([zlib.crc32(item.encode()) / 2**32 for item in items]))

    request = RankRequest(by=Criterion("size", poles=("small", "large")), method=method)
    options = StreamOptions(column="text")
    run_job(Path(source), Path(out), request, Reader.open(model), options, engine=engine)


def start(model: Path, source: Path, out: Path, method: str, cache: Path) -> subprocess.Popen:
    """Start the command."""
    if "--made-up-scores" in sys.argv:
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import million; "
        code += f"million.made_up({str(model)!r}, {str(source)!r}, {str(out)!r}, {method!r})"
        environment = {**os.environ, "CCRANK_CACHE": str(cache)}
        return subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True
        )
    command = [
        sys.executable,
        "-m",
        "ccrank",
        "rank",
        "--input",
        str(source),
        "--column",
        "text",
        "--by",
        "size",
    ]
    command += ["--poles", "small", "large", "--method", method, "--model", str(model), "--out", str(out)]
    command += ["--batch-tokens", "4096"]  # what suits so small a model
    environment = {**os.environ, "CCRANK_CACHE": str(cache)}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def wait(process: subprocess.Popen) -> tuple[float, float, str]:
    """The peak resident set in MB, the CPU time in seconds, and what the command said."""
    said = process.stderr.read() if process.stderr else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(said)
    peak = usage.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return peak, usage.ru_utime + usage.ru_stime, said


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--method", default="auto")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--made-up-scores", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = make_model(folder / "model")
        wait(
            start(
                model,
                write_items(folder / "few.parquet", 2000),
                folder / "few-out.parquet",
                chosen.method,
                folder,
            )
        )
        peaks = []
        print(f"{'rows':>10} {'peak MB':>8} {'seconds':>8} {'CPU s':>8} {'rows/s':>8} {'output MB':>10}")
        for rows in chosen.rows:
            source = write_items(folder / f"{rows}.parquet", rows)
            out = folder / f"{rows}-out.parquet"
            began = time.perf_counter()
            peak, cpu, _ = wait(start(model, source, out, chosen.method, folder))
            seconds = time.perf_counter() - began
            peaks.append(peak)
            check(out, rows)
            size = out.stat().st_size / (1 << 20)
            print(
                f"{rows:>10,} {peak:>8.0f} {seconds:>8.0f} {cpu:>8.0f} {rows / cpu:>10.0f} {size:>10.1f}",
                flush=True,
            )
        print(f"memory of the largest job over that of the smallest: {peaks[-1] / peaks[0]:.3f}")
        if chosen.kill:
            killed(model, source, out, chosen.method, folder)


def check(out: Path, rows: int) -> None:
    """Assert that every row is there once, in the order of its score, with its rank."""
    found = parquet.read_table(out, columns=["id", "rank", "score"])
    assert np.array_equal(np.sort(found["id"].to_numpy()), np.arange(rows)), "rows are lost or repeated"
    scores, ranks = found["score"].to_numpy(), found["rank"].to_numpy()
    assert (np.diff(scores.round(6)) <= 0).all(), "rows are not in the order of their scores"
    assert (np.diff(ranks) >= 0).all(), "ranks are not in order"
    assert ranks[0] == 1, "the first rank is not 1"


def killed(model: Path, source: Path, expected: Path, method: str, folder: Path) -> None:
    """Kill a job twice, after a third and after two thirds of its blocks, and compare what is resumed."""
    out = folder / "killed.parquet"
    parts = folder / "killed.parquet.job" / "parts"
    blocks = -(-parquet.ParquetFile(source).metadata.num_rows // 4096)
    for share in (1 / 3, 2 / 3):
        process = start(model, source, out, method, folder)
        while process.poll() is None and len(list(parts.glob("*.parquet"))) < share * blocks:
            time.sleep(0.05)
        process.kill()
        process.wait()
        print(f"killed with {len(list(parts.glob('*.parquet')))} blocks finished", flush=True)
    peak, _, said = wait(start(model, source, out, method, folder))
    print("\n".join(said.strip().splitlines()[:1]))
    assert parquet.read_table(out).equals(parquet.read_table(expected)), "the resumed output differs"
    print(f"the resumed output equals the other one; peak of the last process {peak:.0f} MB")


if __name__ == "__main__":
    main()
