"""The requests that drive an engine in each stage, made from the sample prompts."""

import pathlib
from collections.abc import Sequence

from tabletune.measure.load import LoadRequest
from tabletune.measure.progress import Progress
from tabletune.measure.prompts import PromptSet, load_prompts
from tabletune.measure.render import Renderer
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.session import LiveEngine

#: Tokens left unused below the engine's longest sequence.
SPARE_TOK = 8
#: Output tokens per request: long where only step times count, natural where text matters.
LONG_OUTPUT_TOK = 1024
NATURAL_OUTPUT_TOK = 96
#: Different prompts for step times.
STEP_TIME_PROMPTS = 256


def sample_prompts(request: RunRequest) -> PromptSet:
    """The prompts of the run, evenly over their groups, at most `prompt_count`.

    Raises:
        PromptFileError: the file cannot be used.
    """
    prompts = load_prompts(pathlib.Path(request.prompts) if request.prompts else None)
    return prompts.sample(request.prompt_count)


def natural_requests(
    prompts: PromptSet, live: LiveEngine, progress: Progress, max_tokens: int = NATURAL_OUTPUT_TOK
) -> list[LoadRequest]:
    """The prompts as a client would send them."""
    return natural_renderer(live, progress, max_tokens)(prompts.prompts)


def natural_renderer(
    live: LiveEngine, progress: Progress, max_tokens: int = NATURAL_OUTPUT_TOK
) -> Renderer:
    """Makes requests of prompts, cut to the engine's longest sequence."""
    room = live.model.max_model_len - SPARE_TOK
    output = min(max_tokens, room // 2)
    return Renderer(live.api, live.model.name, output, progress, max_prompt_tok=room - output)


def step_time_requests(
    request: RunRequest, prompts: PromptSet, live: LiveEngine, progress: Progress
) -> tuple[list[LoadRequest], float]:
    """Requests that keep an engine decoding, and their mean prompt length in tokens.

    Model drafters draft whatever the text is: fixed prompts and long outputs give the most
    steps. N-gram and suffix drafters draft what the text repeats, so their requests are
    natural ones.
    """
    if request.step_kind == "mixed":
        requests = natural_requests(prompts, live, progress, 2 * NATURAL_OUTPUT_TOK)
        return requests, _mean_prompt_tok(requests, request.context_tok)
    room = live.model.max_model_len - SPARE_TOK
    prompt_tok = min(request.context_tok, room - min(LONG_OUTPUT_TOK, room // 2))
    output = min(LONG_OUTPUT_TOK, room - prompt_tok)
    words = " ".join(prompt.text for prompt in prompts.prompts).split()
    wanted = prompt_tok  # a word is at least one token
    words *= 1 + wanted // len(words)
    starts = range(0, len(words) - wanted, max(1, (len(words) - wanted) // STEP_TIME_PROMPTS))
    extra = {"ignore_eos": True, "truncate_prompt_tokens": prompt_tok}
    texts = [" ".join(words[start : start + wanted]) for start in starts]
    return [LoadRequest(text, output, extra) for text in texts], float(prompt_tok)


def output_room_tok(live: LiveEngine, prompt_tok: float) -> int:
    """The longest output, in tokens, that the engine has room for behind such a prompt."""
    return live.model.max_model_len - SPARE_TOK - round(prompt_tok)


def _mean_prompt_tok(requests: Sequence[LoadRequest], otherwise: float) -> float:
    lengths = [len(r.prompt) for r in requests if isinstance(r.prompt, list)]
    return sum(lengths) / len(lengths) if lengths else otherwise
