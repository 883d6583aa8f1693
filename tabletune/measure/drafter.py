"""Whether a drafter belongs to a model, from their configs and tokenizers, before any boot."""

import json
from typing import Any, Final

from tabletune.identity.artifact import Artifact
from tabletune.measure.compat import Refusal, plain_method

#: Methods without a drafter of their own.
WITHOUT_DRAFTER: Final = frozenset({"ngram", "ngram_gpu", "suffix"})
#: Heads that read the target's hidden states; they may draft from a smaller vocabulary,
#: with a mapping to the target's (`draft_vocab_size`).
HEADS: Final = frozenset({"eagle", "eagle3", "dflash", "dspark", "medusa", "mlp_speculator"})
TOKENIZER_LIMIT_BYTES: Final = 128 << 20


def check_drafter(
    model: Artifact, drafter: Artifact | None, method: str, mixed_vocabularies: bool = False
) -> list[Refusal]:
    """All reasons against this drafter for this model; [] if there is none.

    mixed_vocabularies: vLLM's `use_heterogeneous_vocab` is set (draft_model only).
    """
    method = plain_method(method)
    if drafter is None:
        if method in HEADS or method == "draft_model":
            return [
                Refusal("drafter-missing", f"the method {method!r} needs a drafter (--drafter)")
            ]
        return []
    if method in WITHOUT_DRAFTER:
        reason = f"the method {method!r} has no drafter, but {drafter.name!r} was given"
        return [Refusal("drafter-unused", reason)]
    found: list[Refusal | None] = []
    if not (method == "draft_model" and mixed_vocabularies):
        found += [_vocabulary_size(model, drafter), _vocabulary(model, drafter, method)]
    if method in HEADS:
        found += [_draft_vocabulary(model, drafter), _hidden_size(model, drafter, method)]
    return [refusal for refusal in found if refusal is not None]


def _vocabulary_size(model: Artifact, drafter: Artifact) -> Refusal | None:
    sizes = (model.vocabulary_size, drafter.vocabulary_size)
    if None in sizes or sizes[0] == sizes[1]:
        return None
    return Refusal(
        "drafter-vocabulary",
        f"the drafter {drafter.name!r} has a vocabulary of {sizes[1]} tokens, the model "
        f"{model.name!r} one of {sizes[0]}; choose a drafter made for this model",
    )


def _draft_vocabulary(model: Artifact, drafter: Artifact) -> Refusal | None:
    size, limit = drafter.draft_vocabulary_size, model.vocabulary_size
    if size is None or limit is None or 0 < size <= limit:
        return None
    return Refusal(
        "drafter-draft-vocabulary",
        f"the drafter {drafter.name!r} drafts from {size} tokens, expected 1 to {limit}, the "
        f"model's vocabulary",
    )


def _hidden_size(model: Artifact, drafter: Artifact, method: str) -> Refusal | None:
    """EAGLE heads read hidden states of the width they were trained on."""
    if method not in ("eagle", "eagle3"):
        return None
    wanted = drafter.target_hidden_size or drafter.hidden_size
    if wanted is None or model.hidden_size is None or wanted == model.hidden_size:
        return None
    return Refusal(
        "drafter-hidden-size",
        f"the drafter {drafter.name!r} reads hidden states of width {wanted}, the model "
        f"{model.name!r} gives {model.hidden_size}; choose a drafter made for this model",
    )


def _vocabulary(model: Artifact, drafter: Artifact, method: str) -> Refusal | None:
    """Vocabularies of one size can still be different ones."""
    if method != "draft_model":
        return None
    ours, theirs = _tokens(model), _tokens(drafter)
    if ours is None or theirs is None or ours == theirs:
        return None
    other = next(
        (token for token, number in ours.items() if theirs.get(token) != number),
        next((token for token in theirs if token not in ours), ""),
    )
    return Refusal(
        "drafter-vocabulary",
        f"the vocabularies of the drafter {drafter.name!r} and the model {model.name!r} differ: "
        f"{other!r} is token {ours.get(other)} of the model, {theirs.get(other)} of the drafter; "
        f"choose a drafter made for this model",
    )


def _tokens(artifact: Artifact) -> dict[str, int] | None:
    """Token -> number from tokenizer.json, or None if it cannot be told."""
    path = artifact.folder / "tokenizer.json"
    try:
        if path.stat().st_size > TOKENIZER_LIMIT_BYTES:
            return None
        content: Any = json.loads(path.read_bytes())
        vocabulary = content["model"]["vocab"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if isinstance(vocabulary, dict):
        return vocabulary
    if isinstance(vocabulary, list):
        return {pair[0]: number for number, pair in enumerate(vocabulary)}
    return None
