"""The sizes that `ccrank models list` states: counted from published configurations, without weights."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import transformers

from ccrank.models.load.catalog import families, hub_models, known_models, named_models
from ccrank.util.files import parse_toml

FACTS = parse_toml(Path(__file__).with_name("architectures.toml"))
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "models.md"
CLASSES = {
    "causal": transformers.AutoModelForCausalLM,
    "masked": transformers.AutoModelForMaskedLM,
    "encoder_decoder": transformers.AutoModelForSeq2SeqLM,
}
TYPES = {
    one["id"]: (form, name)
    for form, table in families().items()
    for name, family in table.items()
    for one in family.get("hub", ())
} | {"HuggingFaceTB/SmolLM2-135M-Instruct": ("causal", "llama")}


def weights(hub: str) -> int:
    """The number of weights of a model that is built from its sizes on the meta device."""
    facts = FACTS["models"][hub]
    facts = FACTS["models"][facts["like"]] if "like" in facts else facts
    form, kind = TYPES.get(hub, ("encoder", "bert"))
    sizes = facts["sizes"]
    config = transformers.AutoConfig.for_model(kind, **FACTS["defaults"].get(kind, {}), **sizes)
    with torch.device("meta"):
        model = CLASSES.get(form, transformers.AutoModel).from_config(config)
        model.tie_weights()
    own = sizes["vocab_size"] * sizes["d_model"] if facts.get("own_head") else 0
    return sum(one.numel() for one in model.parameters()) + own


@pytest.mark.parametrize("entry", [*hub_models(), *named_models()], ids=lambda entry: entry.name)
def test_stated_sizes_are_those_of_the_architecture(entry):
    """The number of weights is exactly that of the model that `transformers` builds from the published sizes."""
    assert entry.parameters == weights(entry.hub or known_models()[entry.name].quantized_from)


def test_every_size_has_a_source():
    """Each model that is listed has an architecture with the place where it was read, and nothing else has one."""
    wanted = {*TYPES, *(model.hub for model in known_models().values() if model.hub)}
    assert {*FACTS["models"]} == wanted
    assert all(one["source"] for one in FACTS["models"].values())


def test_the_page_states_the_same_facts():
    """The table of hub ids: weights, context window, licence and gate are those of families.toml, and
    each licence has a link or is marked as not verified."""
    rows = {}
    for line in re.findall(
        r"^\| `([\w.-]+/[\w.-]+)` \|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    ):
        rows[line[0]] = [cell.strip() for cell in line[1].split("|")]
    assert list(rows) == [entry.hub for entry in hub_models()]
    for entry in hub_models():
        count, context, licence, gated = rows[entry.hub]
        assert int(count.replace(",", "")) == entry.parameters
        assert int(context.replace(",", "").split()[0]) == entry.context
        assert entry.licence in licence
        assert "](https://" in licence or "not verified" in licence
        assert gated.startswith("yes") == entry.gated
