"""The kernel of float32 matrix products: exact, chosen once for each machine, and without a setting of the process."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tiny import CAUSAL, MASKED, SEQ2SEQ, pair_prompts, save_model, tiny_model, tiny_reader
from torch.nn import functional

from ccrank.models import Reader, load_model, products
from ccrank.task import Criterion, Task

TASK = Task(Criterion("size", "larger"), ("Russia", "Chad", "Peru"), id="sizes")
with_onednn = pytest.mark.skipif(
    not products._is_exact(products._onednn), reason="PyTorch has no oneDNN product here"
)


@pytest.fixture(autouse=True)
def choose_again(tmp_path, monkeypatch):
    """Each test chooses for itself, and none keeps the choice."""
    monkeypatch.setenv("CCRANK_CACHE", str(tmp_path / "cache"))
    chosen = products.fastest_product
    chosen.cache_clear()
    yield
    chosen.cache_clear()


def bfloat16_inside(states, weight, bias=None):
    """What a kernel does that computes in fewer bits than it is given."""
    added = None if bias is None else bias.bfloat16()
    return functional.linear(states.bfloat16(), weight.bfloat16(), added).float()


def without_bias(states, weight, bias=None):
    return functional.linear(states, weight)


def not_there(states, weight, bias=None):
    return torch.ops.mkldnn.no_such_product(states, weight)


@pytest.mark.parametrize("kernel", [bfloat16_inside, without_bias, not_there])
def test_a_kernel_that_is_wrong_is_not_used(kernel, monkeypatch):
    """However fast it is: the precision is tried, not taken from the CPU's name."""
    monkeypatch.setattr(products, "_onednn", kernel)
    monkeypatch.setattr(products, "_is_faster", lambda: True)
    assert products.fastest_product() is functional.linear


@pytest.mark.parametrize(("onednn", "chosen"), [(0.5, products._onednn), (0.95, functional.linear)])
def test_the_race_is_run_once_and_kept(onednn, chosen, tmp_path, monkeypatch):
    """The second process takes the first one's choice; near equals keep PyTorch's kernel."""
    monkeypatch.setattr(products, "_is_exact", lambda product: True)
    monkeypatch.setattr(products, "_race", lambda: {"torch": 1.0, "onednn": onednn})
    assert products.fastest_product() is chosen
    monkeypatch.setattr(products, "_race", lambda: pytest.fail("a second race"))
    products.fastest_product.cache_clear()
    assert products.fastest_product() is chosen
    [note] = (tmp_path / "cache" / "kernels").iterdir()
    note.write_text("[]")
    monkeypatch.setattr(products, "_race", lambda: {"torch": 1.0, "onednn": onednn})
    products.fastest_product.cache_clear()
    assert products.fastest_product() is chosen
    assert json.loads(note.read_text())["seconds"]["onednn"] == onednn


@with_onednn
@pytest.mark.parametrize("shape", [(0, 24), (1, 24), (7, 24), (2, 5, 24)])
def test_products_are_those_of_float64_rounded(shape):
    """With and without a bias, for any number of rows, and for rows that are not contiguous."""
    generator = torch.Generator().manual_seed(1)
    states, weight, bias = (torch.randn(size, generator=generator) for size in (shape, (10, 24), (10,)))
    for given in (states, states.transpose(0, -2) if states.dim() == 3 else states[::2]):
        for added in (None, bias):
            exact = functional.linear(
                given.double(), weight.double(), None if added is None else added.double()
            )
            with torch.inference_mode():
                found = products._onednn(given, weight, added)
            torch.testing.assert_close(found, exact.float(), rtol=1e-5, atol=1e-5)


@with_onednn
@pytest.mark.parametrize(
    ("states", "weight", "bias"),
    [
        (torch.randn(4, 16), torch.randn(8, 16), torch.randn(16)[::2]),
        (torch.randn(4, 16), torch.randn(8, 16), torch.ones(1).expand(8)),
        (torch.randn(4, 16), torch.randn(8, 16), torch.tensor(1.0)),
        (torch.randn(4, 16), torch.randn(8, 16), torch.randn(1)),
        (torch.randn(3, 0), torch.randn(8, 0), torch.randn(8)),
        (torch.randn(4, 16), torch.randn(16, 8).T, torch.randn(8)),
        (torch.randn(4, 16), torch.randn(8, 32)[:, ::2], None),
        (torch.randn(1, 1, 16).expand(3, 5, 16), torch.randn(1, 16).expand(8, 16), None),
        (torch.randn(16), torch.randn(16), None),
    ],
    ids=[
        "strided bias",
        "expanded bias",
        "number",
        "one bias",
        "no width",
        "transposed",
        "strided",
        "expanded",
        "vector",
    ],
)
def test_any_layout_is_the_product_of_the_other_kernel(states, weight, bias, monkeypatch):
    """Whatever the strides and shapes that PyTorch takes: oneDNN alone would read a strided bias wrongly."""
    monkeypatch.setattr(products, "fastest_product", lambda: products._onednn)
    with torch.inference_mode():
        found = products.linear(states, weight, bias)
        torch.testing.assert_close(found, functional.linear(states, weight, bias), rtol=1e-5, atol=1e-5)


@with_onednn
@pytest.mark.parametrize("family", [*CAUSAL, *MASKED, *SEQ2SEQ])
def test_readings_are_those_of_the_other_kernel(family, monkeypatch):
    """Logits and states of every family, at the tolerance of the tree against one by one."""
    reader = tiny_reader(family)
    prompts = pair_prompts(TASK, reader.form)
    expected = reader.read(prompts, ["Yes", "No"], layers="all")
    products.use_fastest_products(reader.loaded.model)
    monkeypatch.setattr(products, "fastest_product", lambda: products._onednn)
    found = reader.read(prompts, ["Yes", "No"], layers="all")
    np.testing.assert_allclose(found.logits, expected.logits, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.states, expected.states, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "bert", "t5"])
def test_a_loaded_model_reads_with_the_chosen_kernel(family, tmp_path, monkeypatch):
    """Every linear layer takes it, and nothing else in the process changes."""
    folder = save_model(tiny_model(family), tmp_path / family)
    before = torch.get_float32_matmul_precision()
    calls = []

    def watched(states, weight, bias=None):
        calls.append(weight.shape)
        return functional.linear(states, weight, bias)

    monkeypatch.setattr(products, "fastest_product", lambda: watched)
    loaded = load_model(str(folder))
    kinds = {type(module) for module in loaded.model.modules() if isinstance(module, torch.nn.Linear)}
    assert kinds == {products.FastLinear}
    reader = Reader(loaded)
    reader.read(pair_prompts(TASK, reader.form), ["Yes", "No"], layers=[-1])
    assert len(calls) >= 4
    assert torch.get_float32_matmul_precision() == before
    calls.clear()
    torch.nn.Linear(3, 3)(torch.zeros(1, 3))
    assert not calls
