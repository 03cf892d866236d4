"""Rendering a model's chat template, a program by the model's author, in a process with bounds on time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from ccrank.errors import CcrankError

MAX_SECONDS = 10  # CPU time; templates take some milliseconds
MAX_MEMORY = 1 << 30
MAX_OUTPUT = 100_000  # characters around one message
WALL_SECONDS = 300  # where the system limits no CPU time; more than enough on a busy machine

_RENDER = """
import json, math, sys
given = json.load(sys.stdin)
sys.path[:] = given["path"]
from transformers.utils.chat_template_utils import render_jinja_template
try:
    import resource
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime + given["seconds"])
    for limit, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_DATA, given["memory"])):
        resource.setrlimit(limit, (most, most))
except (ImportError, ValueError, OSError):
    pass
[text], _ = render_jinja_template([given["messages"]], chat_template=given["template"], **given["names"])
if len(text) > given["output"]:
    raise ValueError(f"it writes {len(text):,} characters around one message")
sys.stdout.write(json.dumps(text))
"""


def render_chat(tokenizer: Any, messages: Sequence[dict[str, str]], **names: Any) -> str:
    """The text that a tokenizer's chat template makes of messages, ready for an answer."""
    try:
        given = {
            "path": sys.path,
            "seconds": MAX_SECONDS,
            "memory": MAX_MEMORY,
            "output": MAX_OUTPUT,
            "template": tokenizer.get_chat_template(),
            "messages": list(messages),
            "names": {**tokenizer.special_tokens_map, "add_generation_prompt": True, **names},
        }
        done = subprocess.run(
            [sys.executable, "-I", "-c", _RENDER],
            input=json.dumps(given, default=str),  # tokens are objects in some versions
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=WALL_SECONDS,
            check=False,
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise CcrankError(f"this model's chat template cannot be used: {error}; remove --chat") from None
    except subprocess.TimeoutExpired:
        raise CcrankError(
            f"this model's chat template takes more than {WALL_SECONDS} s; remove --chat"
        ) from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        reason = lines[-1][:300] if lines else "it takes too much time"
        if done.returncode < 0:
            reason = f"it takes more than {MAX_SECONDS} s of CPU time, or too much memory"
        raise CcrankError(f"this model's chat template cannot be used: {reason}; remove --chat")
    return str(json.loads(done.stdout))
