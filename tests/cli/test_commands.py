"""The other commands: what they print, for people and as JSON."""

from __future__ import annotations

import json
import re

import pytest
from fake import FakeReader
from rich.text import Text
from typer.main import get_command
from typer.testing import CliRunner

from ccrank import __version__
from ccrank.cli.commands import app
from ccrank.methods.prompting.listwise import prompt_list
from ccrank.methods.registry import METHODS
from ccrank.models import reader as reader_module
from ccrank.models.check import verdict_store as checked_module
from ccrank.models.prompter import Prompter
from ccrank.task import Criterion, Task

COMMANDS = [
    ["rank"],
    ["methods"],
    ["cost"],
    ["data"],
    ["data", "list"],
    ["data", "show"],
    ["models"],
    ["models", "list"],
    ["models", "check"],
    ["models", "pull"],
    ["models", "info"],
    ["cache"],
    ["cache", "info"],
    ["cache", "clear"],
]


def ok(result):
    assert result.code == 0, result.err
    # A tiny model is warned of, and rightly.
    assert all(line.startswith("ccrank: warning: ") for line in result.err.splitlines()), result.err
    return result.out


@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help(ccrank, command, flag):
    """Every command has a help text."""
    out = ok(ccrank(*command, flag))
    assert "Usage" in out
    assert len(out.splitlines()) > 4


def test_help_is_shown_whole():
    """Help is markup, which drops words in brackets that are not escaped; and paragraphs are wrapped by the terminal,
    not where the docstring breaks its lines."""

    def commands(one):
        yield one
        for other in getattr(one, "commands", {}).values():
            yield from commands(other)

    for command in commands(get_command(app)):
        assert "\n" not in (command.help or "").replace("\n\n", " "), command.name
        for parameter in command.params:
            text = getattr(parameter, "help", None) or ""
            assert Text.from_markup(text).plain == text.replace("\\[", "["), (command.name, parameter.name)


def test_help_names_the_defaults(ccrank, monkeypatch):
    """A flag that is unset because a file may set it shows its default all the same."""
    monkeypatch.setenv("COLUMNS", "200")
    out = ok(ccrank("bench", "--help-all"))
    assert "[default: no-chat]" in out
    assert "NAME[@VARIANT][:SPLIT]" in out


@pytest.mark.parametrize("name", ["rank", "bench", "label", "serve"])
def test_help_fits_a_screen(ccrank, name):
    """--help shows about a dozen flags, of which each exists, and --help-all shows all."""
    command = get_command(app).commands[name]
    flags = {param.opts[0] for param in command.params if not param.hidden and param.opts[0].startswith("--")}

    def listed(form):
        return set(re.findall(r"^│[ *]+(--[a-z-]+)", ok(ccrank(name, form)), re.MULTILINE)) - {"--help"}

    assert listed("--help-all") == flags
    assert 8 <= len(listed("--help")) <= 15
    assert set(command.callback.shown_first) <= {param.name for param in command.params}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("rank --method prompt-", ["prompt-pair", "prompt-point", "prompt-list"]),
        ("rank -m mini", ["minilm"]),
        ("methods anch", ["anchored"]),
        ("label --model def", ["default"]),
    ],
)
def test_values_are_completed(words, found):
    """Names of methods and models, and not only flags, are completed by the shell."""
    environment = {"_CCRANK_COMPLETE": "complete_bash", "COMP_WORDS": f"ccrank {words}", "COMP_CWORD": "3"}
    environment["COMP_CWORD"] = str(len(words.split()))
    done = CliRunner().invoke(app, [], prog_name="ccrank", env=environment)
    assert done.stdout.split() == found


def test_version(ccrank):
    """The package's own."""
    assert ok(ccrank("--version")) == f"ccrank {__version__}\n"


def test_no_command_shows_the_help(ccrank):
    """Someone who types the bare name sees what there is."""
    result = ccrank()
    assert "Usage" in result.out + result.err
    assert result.code in (0, 2)


def test_methods(ccrank):
    """Lists all methods, as a table and as JSON, and shows one with its options."""
    rows = json.loads(ok(ccrank("methods", "--json")))
    assert [row["name"] for row in rows] == list(METHODS)
    out = ok(ccrank("methods"))
    assert all(f"\n{name} " in out for name in METHODS)
    out = ok(ccrank("methods", "prompt-list"))
    assert "shuffles=5" in out
    assert "anchor=yes" in ok(ccrank("methods", "auto"))
    assert "No options." in ok(ccrank("methods", "length"))
    [row] = json.loads(ok(ccrank("methods", "prompt-list", "--json")))
    assert row["options"]["shuffles"] == 5


def test_data_list(ccrank):
    """Packaged datasets have counts; missing ones are marked as not available without an error."""
    rows = {row["name"]: row for row in json.loads(ok(ccrank("data", "list", "--json")))}
    assert rows["worldlists"]["tasks"] > 10
    assert rows["worldlists"]["items"] > 2
    assert {"wikilists", "scalaradj", "reviews", "entsalience"} <= set(rows)
    assert "worldlists" in ok(ccrank("data", "list"))


def test_data_show(ccrank, rank, tmp_path):
    """A card with its first tasks; and all tasks as lines that --tasks takes."""
    card = json.loads(ok(ccrank("data", "show", "worldlists", "--tasks", "3", "--json")))
    assert len(card["tasks"]) == 3
    assert card["licence"]
    assert "gold, highest first" in ok(ccrank("data", "show", "worldlists"))
    lines = ok(ccrank("data", "show", "worldlists", "--jsonl"))
    assert json.loads(lines.splitlines()[0]) == card["tasks"][0]
    (tmp_path / "tasks.jsonl").write_text(lines)
    result = rank("--tasks", tmp_path / "tasks.jsonl", "--method", "prompt-point", "--json")
    assert len(ok(result).splitlines()) == len(lines.splitlines())


def test_models_list(ccrank, monkeypatch, tmp_path):
    """The short names, and that none of them is in a fresh cache; --hub lists ids with their quirks."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    rows = json.loads(ok(ccrank("models", "list", "--json")))
    assert {"smollm2-135m", "smollm2-135m-q4"} <= {row["name"] for row in rows}
    assert not any(row["default"] for row in rows)
    assert not any(row["local"] for row in rows)
    assert all(row["memory"]["float32"] == 4 * row["parameters"] for row in rows)
    assert [row["parameters"] for row in rows] == sorted(row["parameters"] for row in rows)
    assert "default stands for smollm2-135m or else smollm2-135m-q4" in ok(ccrank("models", "list"))
    ids = {row["name"]: row for row in json.loads(ok(ccrank("models", "list", "--hub", "--json")))}
    gemma = ids["google/gemma-3-270m"]
    assert "BOS" in gemma["what"]
    assert "gated" in gemma["what"]
    assert (gemma["gated"], gemma["context"]) == (True, 32768)
    assert not ids["Qwen/Qwen3-0.6B-Base"]["gated"]
    assert "google/gemma-3-270m" in ok(ccrank("models", "list", "--hub"))


def test_models_check_loads_and_checks_once(ccrank, model_folder, monkeypatch):
    """The model is loaded as every command loads it, once, and its sentences are read once."""
    calls = []
    for owner, name in ((reader_module, "load_model"), (checked_module, "check_model")):
        own = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *a, own=own, name=name, **k: calls.append(name) or own(*a, **k)
        )
    for _ in range(2):
        assert ccrank("models", "check", model_folder).code == 1
    assert calls == ["load_model", "check_model", "load_model"]


def test_models_check(ccrank, model_folder):
    """A random model is suspect, with the numbers of each sentence and with exit status 1; 2 stays for errors."""
    result = ccrank("models", "check", model_folder, "--json")
    assert result.code == 1
    found = json.loads(result.out)
    assert found["status"] == "suspect"
    assert found["sentences"][0]["bits"] > 0
    assert found["speed"]["tokens_per_second"] > 0
    assert "Likely causes" in ccrank("models", "check", model_folder).out
    halved = json.loads(ccrank("models", "check", model_folder, "--dtype", "bfloat16", "--json").out)
    assert (found["speed"]["dtype"], halved["speed"]["dtype"]) == ("float32", "bfloat16")
    assert ccrank("models", "check", model_folder, "--strict").code == 1
    assert ccrank("models", "check", model_folder + "-none").code == 2


def test_a_suspect_model_is_warned_of(rank, monkeypatch):
    """`rank` warns of a model that fails its check, each time, and refuses it with --strict."""
    monkeypatch.delenv("CCRANK_CHECK")
    for _ in range(2):
        result = rank("a", "b", "--by", "size")
        assert result.code == 0
        assert "ccrank: warning:" in result.err
        assert "far worse than a language model should" in result.err
    assert rank("a", "b", "--by", "size", "--strict").code == 2


def test_auto_says_what_it_picked(ccrank, monkeypatch, model_folder):
    """`--model auto` names its choice and the reason on stderr."""
    monkeypatch.setattr(
        "ccrank.models.load.catalog.best_model", lambda options: (model_folder, "auto: tiny, it is here")
    )
    result = ccrank("rank", "a", "b", "--by", "size", "--model", "auto", "--method", "prompt-pair")
    assert result.code == 0
    assert "ccrank: auto: tiny, it is here" in result.err


def test_models_info(ccrank, model_folder):
    """What the model is, by its own configuration."""
    facts = json.loads(ok(ccrank("models", "info", model_folder, "--json")))
    assert (facts["family"], facts["layers"], facts["width"], facts["window"]) == ("llama", 3, 32, 512)
    assert facts["language_model_head"] is True
    assert model_folder in ok(ccrank("models", "info", model_folder))


def test_a_folder_with_brackets_is_no_markup(ccrank, model_folder, tmp_path):
    """A path is printed as it is."""
    folder = tmp_path / "[red]mine[bold]"
    folder.symlink_to(model_folder, target_is_directory=True)
    assert str(folder) in ok(ccrank("models", "info", str(folder)))
    assert str(folder) in ok(ccrank("cost", "--items", "3", "--model", str(folder)))
    assert str(folder) in ok(ccrank("rank", "a", "b", "--by", "size", "--model", str(folder)))


def test_cache(ccrank, rank):
    """Empty, filled by a ranking, empty again."""

    def info():
        return json.loads(ok(ccrank("cache", "info", "--json")))

    assert info()["entries"] == 0
    ok(rank("a", "b", "c", "--by", "size", cache=True))
    assert info()["entries"] == 6
    assert info()["bytes"] > 0
    assert "6 readings" in ok(ccrank("cache", "info"))
    assert "freed" in ok(ccrank("cache", "clear"))
    assert info()["entries"] == 0


def test_cost(ccrank, model_folder):
    """Calls equal those in the paper's table and in the registry; distinct tokens never exceed tokens."""
    rows = json.loads(ok(ccrank("cost", "--items", "3,6", "--json", "--model", model_folder)))
    calls = {(row["items"], row["method"]): row["calls"] for row in rows}
    for count in (3, 6):
        assert calls[count, "prompt-pair"] == count * (count - 1)
        assert calls[count, "query-likelihood"] == 3 * count + 3
        assert calls[count, "prompt-point"] == count
        assert calls[count, "prompt-list, one shuffle"] == count - 1
        assert calls[count, "probes on ItemPair states"] == 2 * count * (count - 1)
        for name in ("auto", "poles", "likelihood", "axis"):
            least, *most = (eval(bound, {"N": count}) for bound in METHODS[name].calls.split(" to "))
            assert least <= calls[count, name] <= (most or [least])[0]
    for row in rows:
        assert row["distinct_tokens"] <= row["prompt_tokens"]
        assert (
            (row["calls"] > 0)
            == (row["distinct_tokens"] > 0)
            == (row["method"] not in ("length", "first-stage"))
        )
    out = ok(ccrank("cost", "--items", "3", "--context-tokens", "50", "--model", model_folder))
    assert "50 tokens of context" in out
    assert "prompt-pair" in out


def test_cost_of_a_long_list_is_that_of_its_windows(ccrank, model_folder):
    """prompt-list picks from 20 options at a time, and that is what is counted."""
    rows = json.loads(ok(ccrank("cost", "--items", "45", "--json", "--model", model_folder)))
    [row] = [row for row in rows if row["method"].startswith("prompt-list")]
    # A model that always takes the first option left is guessed right at once: no step is read twice.
    reader = FakeReader(lambda text, word: -float(ord(word)))
    task = Task(Criterion("size"), tuple(f"thing {number}" for number in range(45)))
    prompt_list([task], Prompter(reader), shuffles=1)
    assert row["calls"] == len(reader.asked)


@pytest.mark.parametrize(
    "method", ["auto", "anchored", "poles", "likelihood", "axis", "prompt-pair", "frequency"]
)
def test_cost_predicts_what_a_ranking_reads(ccrank, rank, model_folder, method):
    """The distinct tokens counted are those computed when the same list is ranked."""
    from ccrank.cli.commands.methods import costs, sample_task
    from ccrank.models import Reader

    reader = Reader.open(model_folder)
    items = sample_task(reader, 5, 0).items
    [row] = [row for row in costs(reader, 5, 0) if row["method"] == method]
    found = json.loads(ok(rank(*items, "--by", "size", "--json", "--method", method)))["cost"]
    assert found["prompt_tokens"] == row["prompt_tokens"]
    assert found["distinct_tokens"] == row["distinct_tokens"]
