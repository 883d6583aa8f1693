"""Model folders with a real architecture and no weights, for engines started with
``--load-format dummy``: step times are real, what is generated means nothing.

    python -m bench.dummy_models qwen3-4b --out FOLDER
    python -m bench.dummy_models eagle3-qwen3-4b --out FOLDER

Shapes: the published configs of Qwen/Qwen3-0.6B, -4B, -8B, -32B and -30B-A3B (config.json); an
EAGLE-3 head has one layer of the target's width and a draft vocabulary of 32,000, as in the
published EAGLE-3 heads for Qwen3. The tokenizer makes a token of each character of a text, so that
texts that differ have tokens that differ; what is generated are the words t0, t1, … besides.
"""

import argparse
import json
import pathlib
import string
from typing import Any

VOCABULARY_SIZE = 151_936
CHARACTERS = string.ascii_letters + string.digits + string.punctuation + " "

_QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "head_dim": 128,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 40_960,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000,
    "sliding_window": None,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": VOCABULARY_SIZE,
}

_MIXTURE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "router_aux_loss_coef": 0.001,
    "output_router_logits": False,
}


def _qwen3(width: int, inner: int, layers: int, heads: int, *, tied: bool) -> dict[str, Any]:
    """A Qwen3 config. width: of the residual stream; inner: of the feed-forward layer."""
    return _QWEN3 | {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "tie_word_embeddings": tied,
    }


def _eagle3(target: dict[str, Any]) -> dict[str, Any]:
    """A one-layer EAGLE-3 head for a target."""
    kept = {name: target[name] for name in ("hidden_size", "num_attention_heads")}
    inner = {"intermediate_size": target["intermediate_size"]}
    head = {name: value for name, value in _QWEN3.items() if "sliding" not in name}
    own = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "draft_vocab_size": 32_000,
        "mlp_bias": False,
        "num_hidden_layers": 1,
        "num_key_value_heads": target["num_key_value_heads"],
        "tie_word_embeddings": False,
    }
    del head["attention_dropout"], head["initializer_range"]
    return head | own | kept | inner


_TARGETS = {
    "qwen3-0.6b": _qwen3(1024, 3072, 28, 16, tied=True),
    "qwen3-4b": _qwen3(2560, 9728, 36, 32, tied=True),
    "qwen3-8b": _qwen3(4096, 12_288, 36, 32, tied=False),
    "qwen3-32b": _qwen3(5120, 25_600, 64, 64, tied=False),
    "qwen3-30b-a3b": _qwen3(2048, 6144, 48, 32, tied=False) | _MIXTURE,
}


def _in_order(config: dict[str, Any]) -> dict[str, Any]:
    """The keys in the order in which these folders were always written: a model is identified
    by its files' bytes, and profiles of them shall stay valid."""
    late = {"draft_vocab_size": "eos_token_id+"}
    names = sorted(config, key=lambda name: (name not in _FIRST, late.get(name, name)))
    return {name: config[name] for name in names}


_FIRST = ("architectures", "model_type")

CONFIGS = {
    name: _in_order(config)
    for name, config in (
        _TARGETS | {f"eagle3-{name}": _eagle3(config) for name, config in _TARGETS.items()}
    ).items()
}


def parameters(config: dict[str, Any]) -> int:
    """How many parameters a target of this config has."""
    width, layers = config["hidden_size"], config["num_hidden_layers"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    attention = width * (2 * queries + 2 * keys) + 2 * config["head_dim"]
    experts = config.get("num_experts", 0)
    inner = config["moe_intermediate_size"] if experts else config["intermediate_size"]
    feed_forward = 3 * width * inner * max(1, experts) + width * experts
    embeddings = config["vocab_size"] * width * (1 if config["tie_word_embeddings"] else 2)
    return layers * (attention + feed_forward + 2 * width) + embeddings + width


def write_tokenizer(folder: pathlib.Path, vocabulary_size: int) -> None:
    """A tokenizer of printable ASCII characters, and of words up to `vocabulary_size`."""
    known = ["<unk>", "<s>", "</s>", *CHARACTERS]
    words = [*known, *(f"t{i}" for i in range(vocabulary_size - len(known)))]
    special = [
        {
            "id": i,
            "content": words[i],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i in range(3)
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": "."},
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: i for i, word in enumerate(words)},
            "unk_token": "<unk>",
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "model_max_length": 40_960,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def write_model(name: str, folder: pathlib.Path) -> None:
    """Write the config, and for a target also the tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    config = CONFIGS[name]
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    if not name.startswith("eagle3"):
        write_tokenizer(folder, int(config["vocab_size"]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a model folder without weights.")
    parser.add_argument("name", choices=sorted(CONFIGS))
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    write_model(options.name, options.out)


if __name__ == "__main__":
    main()
