"""What is known before the boot about steps in which prompts join decodes: their tokens."""

import math

from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.request_checks import option
from tabletune.pipeline.requests import sample_prompts
from tabletune.records.fingerprint import DeviceFacts

#: Prompts that one step is expected to hold at most; see `DEFAULT_JOINING_TOK`
#: (core/capture_joining.py), which is this many prompts of 128 tokens.
PROMPTS_PER_STEP = 4
#: UTF-8 bytes of text per token, roughly: no tokenizer is at hand before an engine runs.
BYTES_PER_TOKEN = 4
GIB = 2**30
SCALES = {"k": 1000, "m": 10**6, "K": 2**10, "M": 2**20}


def joining_tok(request: RunRequest, device: DeviceFacts) -> int:
    """Tokens of prompts that one step may hold beside decodes, as far as vLLM captures graphs.

    `PROMPTS_PER_STEP` times the mean length of the sample prompts, estimated from their text,
    or the context that the run states its step times for where that is longer. With the widest
    decode step it is no more than `max_batched_tok`.

    Raises:
        PromptFileError: the file of prompts cannot be used.
    """
    prompts = sample_prompts(request).prompts
    text_bytes = sum(len(prompt.text.encode("utf-8", "surrogatepass")) for prompt in prompts)
    mean_tok = math.ceil(text_bytes / len(prompts) / BYTES_PER_TOKEN)
    wanted = PROMPTS_PER_STEP * max(mean_tok, request.context_tok)
    widest_decode_tok = request.max_num_seqs * (request.max_draft_length + 1)
    return max(0, min(wanted, max_batched_tok(request, device) - widest_decode_tok))


def max_batched_tok(request: RunRequest, device: DeviceFacts) -> int:
    """The most tokens in a step, vLLM's `max_num_batched_tokens`: no larger graph is captured.

    Where the request does not say, vLLM's default for a server, the smaller of two where a
    device is not certain; 0 where it says what cannot be read. Source: engine/arg_utils.py,
    `get_batch_defaults` and `_set_default_max_num_seqs_and_batched_tokens_args`, of 0.32 and
    0.33.
    """
    given = option(request.engine_args, "--max-num-batched-tokens")
    if given is not None:
        return _whole_number(given) or 0
    if device.memory_bytes >= 160 * GIB:
        default = 16384
    elif device.memory_bytes >= 70 * GIB and not _small_tier(device):
        default = 8192
    else:
        default = 2048
    longest = _whole_number(option(request.engine_args, "--max-model-len") or "")
    return default if longest is None else min(default, request.max_num_seqs * longest)


def _small_tier(device: DeviceFacts) -> bool:
    """Devices with the memory of a larger tier, whose default is the smallest all the same."""
    return "a100" in device.name.lower() or device.capability == "12.1"


def _whole_number(text: str) -> int | None:
    """Such as 8192, 8k (8000) or 8K (8192); None where it is no such number, such as ``auto``."""
    scale = SCALES.get(text[-1:], 1)
    digits = text[:-1] if scale > 1 else text
    return int(digits) * scale if digits.isdecimal() and int(digits) > 0 else None
