"""Options for loading and reading a model, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

SERVER_PREFIX = "openai:"
"""Before the URL of a server that has loaded the model; see `ccrank.models.remote`."""


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """Options of `Reader.open`; the same names are flags of the command line and keys of a study's `[reader]` table.

    >>> ReaderOptions(dtype="bfloat16").device
    'auto'
    """

    device: str = "auto"
    """auto (CUDA, then Apple's GPU, then the CPU), cpu, cuda, cuda:1, mps."""
    dtype: str = "auto"
    """auto (float32 on a CPU, bfloat16 on a GPU), float32, bfloat16 or float16."""
    batch_tokens: str | int = "auto"
    """Tokens per forward pass; auto takes what fits in memory."""
    chat: bool = False
    """Wrap prompts in the model's chat template."""
    truncate: bool = False
    """Cut contexts that exceed the model's window from their middle, instead of raising an error."""
    allow_pickle: bool = False
    """Open pickled weights, which can run arbitrary code."""
    quantize: str = "no"
    """no, int8 or int4: weights of fewer bits, through bitsandbytes, torchao or optimum-quanto."""
    device_map: str = "no"
    """no, or how a model that is larger than one GPU is spread over several: auto, balanced, sequential."""
    allow_new_head: bool = False
    """Prompt a model even if its checkpoint lacks (part of) the language-model head."""
    revision: str = "auto"
    """A branch, a tag or a commit of a model from the hub; auto (the commit that ccrank states for models with a short
    name, else the newest)."""
    strict: bool = False
    """Refuse a model that fails the check at its first load, instead of warning."""
