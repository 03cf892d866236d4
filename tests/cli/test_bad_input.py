"""Whatever a user gets wrong: exit code 2 and one clear message, before any work is done."""

from __future__ import annotations

import json

import pytest

from ccrank.cli.commands.methods import check_context
from ccrank.errors import CcrankError


def refused(result, *words):
    """Exit code 2, the words on stderr, nothing on stdout, no traceback."""
    assert result.code == 2, result.out + result.err
    assert result.out == ""
    assert "Traceback" not in result.err
    for word in words:
        assert word in result.err
    return True


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a", "b"], ["no criterion", "--by size"]),
        (["a", "b", "--by", ""], ["no criterion"]),
        (["a", "b", "--by", "  "], ["no criterion"]),
        (["a", "--by", "size"], ["at least 2 items, got 1"]),
        (["a", "a", "a ", "--by", "size"], ["all 3 items are the same, 'a'", "at least 2 different"]),
        (["a", " ", "--by", "size"], ["item 2 is empty"]),
        (["a", "b", "--by", "size", "--comparative", ""], ["comparative must be a word"]),
        (["a", "b", "--by", "size", "--poles", "x", "x"], ["poles must be two different words"]),
        (["a", "b", "--by", "size", "--method", "magic"], ["unknown method 'magic'", "prompt-pair"]),
        (["a", "b", "--by", "size", "-o", "magic=1"], ["no option 'magic'", "calibration"]),
        (["a", "b", "--by", "size", "-o", "method=prompt-point"], ["no option 'method'"]),
        (["a", "b", "--by", "size", "-o", "reader=1"], ["no option 'reader'"]),
        (["a", "b", "--by", "size", "-o", "calibration"], ["NAME=VALUE", "'calibration'"]),
        (["a", "b", "--by", "size", "-o", "calibration=magic"], ["unknown calibration 'magic'"]),
        (["a", "b", "--by", "size", "-o", "pairs=x"], ["not 'x'"]),
        (["a", "b", "--by", "size", "-o", "seed=-1"], ["got -1"]),
        (["a", "b", "--by", "size", "-o", "seed=x"], ["must be a number, not 'x'"]),
        (["a", "b", "--by", "size", "--template", "pair={thing} {slot}"], ["unknown fields ['thing']"]),
        (["a", "b", "--by", "size", "--template", "pair={item} {slot}"], ["{item_a}"]),
        (["a", "b", "--by", "size", "--template", "pair=Well? {slot}"], ["needs {item_a} and {item_b}"]),
        (["a", "b", "--by", "size", "--template", "pair"], ["NAME=TEXT"]),
        (["a", "b", "--by", "size", "--templates", "nowhere.toml"], ["nowhere.toml"]),
        (
            ["a", "b", "--by", "size", "--template", "pairs={item_a} {item_b} {slot}"],
            ["--template pairs", "'pair'"],
        ),
        (["a", "b", "--by", "size", "--device", "warp"], ["the device 'warp' cannot be used"]),
        (["a", "b", "--by", "size", "--dtype", "int3"], ["unknown precision 'int3'"]),
        (["a", "b", "--by", "size", "--batch-tokens", "many"], ["'many'"]),
        (["a", "b", "--by", "size", "--json", "--csv"], ["--json and --csv are mutually exclusive"]),
        (["a", "b", "--by", "size", "--top", "0"], ["--top"]),
        (["a", "b", "--by", "size", "--nonsense"], ["--nonsense"]),
        (["a", "b", "--by", "size", "--plot", "x.gif"], [".png, .pdf or .svg", "x.gif"]),
        (
            ["a", "b", "--by", "size", "--plot", "nowhere/x.png"],
            ["the folder of nowhere/x.png does not exist"],
        ),
        (["a", "b", "--by", "size", "--out", "x.txt"], ["x.txt", "--json or --csv"]),
        (["a", "b", "--by", "size", "--out", "nowhere/x.json"], ["the folder of nowhere/x.json"]),
        (["a", "b", "--by", "size", "--out", ".", "--json"], ["is a folder"]),
        (["a", "b", "--by", "size", "--file", "x.txt"], ["not both"]),
        (["a", "b", "--by", "size", "--column", "x"], ["not both"]),
        (["a", "b", "--by", "size", "--id", "x"], ["not both"]),
        (["--file", "nowhere.txt", "--by", "size"], ["there is no file nowhere.txt"]),
        (["--file", ".", "--by", "size"], ["is a folder"]),
        (["--by", "size"], ["standard input contains no items"]),
        (["a", "b", "--by", "size", "--context", "@nowhere.txt"], ["there is no file nowhere.txt"]),
        (["--tasks", "x.jsonl", "--by", "size"], ["--tasks contains items and criteria", "remove --by"]),
        (["--tasks", "x.jsonl", "--column", "c", "a"], ["remove items, --column"]),
        (["--tasks", "nowhere.jsonl"], ["there is no file nowhere.jsonl"]),
        (["a", "b\udce9", "--by", "size"], ["not valid Unicode"]),
    ],
)
def test_bad_arguments(rank, arguments, words):
    """The message has the value and the remedy."""
    assert refused(rank(*arguments), *words)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("latin.txt", "caf\xe9\nbar\n".encode("latin1"), ["not UTF-8", "0xe9 at offset 3", "iconv"]),
        ("two.csv", b"name,size\na,1\nb,2\n", ["several columns", "'name', 'size'"]),
        ("empty.txt", b"\n\n", ["contains no items"]),
        ("one.json", b'["a", "b"]', ["JSON lines"]),
    ],
)
def test_bad_files(rank, tmp_path, name, content, words):
    """What is wrong with the file, and where."""
    (tmp_path / name).write_bytes(content)
    assert refused(rank("--file", tmp_path / name, "--by", "size"), name, *words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{nonsense", ["line 2", "not JSON"]),
        ('{"criterion": "size", "items": ["a"]}', ["line 2", "at least 2 items"]),
        ('{"criterion": "size"}', ["line 2", "no 'items'"]),
        ('{"id": "first", "criterion": "size", "items": ["a", "b"]}', ["line 2", "already used in line 1"]),
        ('{"criterion": "size", "items": ["a", "b\\ud800"]}', ["line-2", "not valid Unicode"]),
    ],
)
def test_bad_task_lines_are_named(rank, tmp_path, line, words):
    """A task file's bad line is found by its number."""
    (tmp_path / "tasks.jsonl").write_text(
        '{"id": "first", "criterion": "size", "items": ["a", "b"]}\n' + line + "\n"
    )
    assert refused(rank("--tasks", tmp_path / "tasks.jsonl"), *words)


def test_several_tasks_cannot_be_drawn(rank, tmp_path):
    """Said before they are ranked."""
    line = '{{"id": "{}", "criterion": "size", "items": ["a", "b"]}}\n'
    (tmp_path / "tasks.jsonl").write_text(line.format(1) + line.format(2))
    assert refused(
        rank("--tasks", tmp_path / "tasks.jsonl", "--plot", tmp_path / "x.png"), "draws one ranking"
    )


@pytest.mark.parametrize("method", ["prompt-pair", "prompt-point", "prompt-list"])
def test_an_item_of_5000_words(rank, method):
    """A prompt that is too long is refused with a message on --truncate; with --truncate it is ranked."""
    arguments = ("word " * 5000, "b", "--by", "size", "--method", method, "--json")
    assert refused(rank(*arguments), "does not fit the model's window of 512", "--truncate")
    result = rank(*arguments, "--truncate")
    assert result.code == 0, result.err
    assert len(json.loads(result.out)["items"]) == 2


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("magic", ["no model 'magic'", "default"]),
        (".", ["no config.json"]),
        ("", ["the model has no name"]),
        ("weights.bin", ["not a .gguf"]),
        ("x" * 5000, ["no model 'xxx"]),
        ("default," + "x" * 5000, ["no model 'xxx"]),
        ("~nobody-has-this-name/x/y", ["no model '~nobody"]),
    ],
)
def test_bad_models(ccrank, tmp_path, model, words):
    """A name, a folder or a file that is no model."""
    (tmp_path / "weights.bin").write_bytes(b"x")
    assert refused(ccrank("rank", "a", "b", "--by", "size", "--model", model), *words)


def test_a_damaged_model(ccrank, tmp_path):
    """A folder with a configuration and no sense in it."""
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert refused(ccrank("rank", "a", "b", "--by", "size", "--model", str(tmp_path)), "no weights")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cost", "--items", "few"], ["'few'"]),
        (["cost", "--items", "1"], ["at least 2 items"]),
        (["cost", "--items", ""], ["''"]),
        (["data", "list"], ["CCRANK_DATA is set to /nowhere/data", "not a folder", "unset it"]),
        (["methods", "magic"], ["unknown method 'magic'"]),
        (["data", "show", "magic"], ["magic", "worldlists"]),
        (["data", "show", "worldlists", "-o", "magic=1"], ["has no option 'magic'"]),
        (["data", "show", "worldlists", "--tasks", "-1"], ["--tasks"]),
        (["models", "info", "magic"], ["no model 'magic'"]),
        (["models", "pull", "default", "--from", "moon"], ["not 'moon'"]),
        (["nonsense"], ["nonsense"]),
        (["models", "pull", "a/b", "--revision", "\ud800"], ["'\\ud800'"]),
        (["serve", "--reports", "\ud800"], ["'\\ud800'"]),
        (["serve", "--host", "9" * 5000], ["cannot listen", "--host"]),
        (
            ["rank", "a", "b", "--by", "size", "--plugin", "~nobody-has-this-name/x.py"],
            ["cannot read the plugin"],
        ),
    ],
)
def test_other_commands(ccrank, monkeypatch, arguments, words):
    """They refuse in the same way."""
    monkeypatch.setenv("CCRANK_DATA", "/nowhere/data")
    assert refused(ccrank(*arguments), *words)


@pytest.mark.parametrize("content", [b"", b" \n\n", b"\xef\xbb\xbf"])
def test_an_empty_context(rank, tmp_path, content):
    """It is refused instead of ranking without the context that was asked for."""
    (tmp_path / "story.txt").write_bytes(content)
    result = rank("a", "b", "--by", "size", "--context", f"@{tmp_path}/story.txt")
    assert refused(result, "story.txt is empty", "leave --context out")


def test_a_context_that_names_a_file(rank, tmp_path):
    """The name of a file is not taken for the text itself."""
    (tmp_path / "story.txt").write_text("The tower is high.")
    result = rank("a", "b", "--by", "size", "--context", "story.txt")
    assert refused(result, "story.txt is the name of a file", "--context @story.txt")


def test_a_context_beyond_the_window(ccrank, model_folder):
    """`cost` counts up to the model's window, and refuses what would fill the memory."""
    result = ccrank("cost", "--context-tokens", "99999999", "--model", model_folder)
    assert refused(result, "--context-tokens must be at most 512 (the model's window), got 99999999")


@pytest.mark.parametrize(("window", "most"), [(512, 512), (10**6, 32_768), (None, 32_768)])
def test_the_bound_of_contexts(window, most):
    """The window bounds the context, and a fixed number does where the window is larger or there is none."""
    check_context(most, window)
    with pytest.raises(CcrankError, match=f"at most {most} "):
        check_context(most + 1, window)


def test_a_bad_cache_limit(rank, monkeypatch):
    """An environment variable is input too."""
    monkeypatch.setenv("CCRANK_CACHE_LIMIT", "much")
    assert refused(rank("a", "b", "--by", "size", cache=True), "CCRANK_CACHE_LIMIT", "'much'")


def test_a_template_of_ones_own_is_used_by_an_option(rank):
    """A new name is an error unless an option of the method uses it."""
    given = ("a", "b", "--by", "size", "--method", "prompt-point", "--template", "mine={item} is {slot}")
    assert refused(rank(*given), "--template mine: there is no template of this name")
    assert rank(*given, "-o", "template=mine").code == 0
