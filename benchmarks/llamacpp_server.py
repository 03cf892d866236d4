"""llama.cpp's server from the package xllamacpp, until its standard input is closed or it is interrupted.

    python -m venv /tmp/llamacpp && /tmp/llamacpp/bin/pip install xllamacpp
    /tmp/llamacpp/bin/python benchmarks/llamacpp_server.py model.gguf [--port 8080] [--float32]

Imports nothing of ccrank, so that it runs in an environment of its own. Prints the server's address. `--float32` keeps
keys and values in float32 and computes attention without the flash kernel, for comparisons to the last digits.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a .gguf file")
    parser.add_argument("--name", default="", help="the model's name; llama.cpp's choice if not given")
    parser.add_argument("--port", type=int, default=8080, help="0 is any free one")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--context", type=int, default=8192, help="tokens, shared by all slots")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--float32", action="store_true", help="keys, values and attention in float32")
    arguments = parser.parse_args()
    import xllamacpp

    wish = xllamacpp.CommonParams()
    wish.model.path = arguments.model
    if arguments.name:
        wish.model_alias = {arguments.name}
    wish.hostnames, wish.port = ["127.0.0.1"], arguments.port
    wish.n_parallel, wish.n_ctx = arguments.slots, arguments.context
    wish.cpuparams.n_threads = wish.cpuparams_batch.n_threads = arguments.threads
    if arguments.float32:
        wish.cache_type_k = wish.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        wish.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(wish)
    print(server.listening_address, flush=True)
    with suppress(KeyboardInterrupt):
        sys.stdin.read()


if __name__ == "__main__":
    main()
