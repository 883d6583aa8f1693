"""Model folders with a real architecture and no weights, for engines started with
``--load-format dummy``: step times are real, what is generated means nothing.

    python bench/dummy_models.py qwen3-4b --out FOLDER
    python bench/dummy_models.py eagle3-qwen3-4b --out FOLDER

Shapes: Qwen3-4B's published config (Qwen/Qwen3-4B, config.json); the EAGLE-3 head has one
layer of the target's shape and a draft vocabulary of 32,000, as in the published EAGLE-3
heads for Qwen3. The tokenizer splits at white space and knows the words t0, t1, …
"""

import argparse
import json
import pathlib
from typing import Any

VOCABULARY_SIZE = 151_936

_QWEN3_4B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2560,
    "initializer_range": 0.02,
    "intermediate_size": 9728,
    "max_position_embeddings": 40_960,
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": VOCABULARY_SIZE,
}

_EAGLE3_QWEN3_4B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "draft_vocab_size": 32_000,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "max_position_embeddings": 40_960,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 1,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": VOCABULARY_SIZE,
}

CONFIGS = {"qwen3-4b": _QWEN3_4B, "eagle3-qwen3-4b": _EAGLE3_QWEN3_4B}


def write_tokenizer(folder: pathlib.Path, vocabulary_size: int) -> None:
    """A white-space tokenizer of `vocabulary_size` words."""
    words = ["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(vocabulary_size - 3))]
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
        "pre_tokenizer": {"type": "WhitespaceSplit"},
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
