"""Turn the GGUF file of SmolLM2 into an ordinary model folder.

A script for the engine environment's Python (it needs torch, transformers, safetensors
and the package `gguf`); the control environment only starts it:

    python materialise_smollm2.py MODEL.gguf FOLDER

The folder gets float32 weights (`model.safetensors`), a `LlamaForCausalLM` config, a
generation config, and the tokenizer with its chat template. transformers can read such a
file but not write it out again, so the tensors are taken over one by one here.
"""

# pyright: reportMissingImports=false
# (its imports are found in the engine environment, not in this one)

import argparse
import json
import pathlib
import sys
from typing import Any

#: Name in the GGUF file -> name in transformers' Llama, outside the blocks.
OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
#: The same inside block N (`blk.N.` -> `model.layers.N.`).
BLOCK_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


def llama_name(gguf_name: str) -> str:
    """The transformers name of a GGUF tensor.

    Raises:
        KeyError: the tensor is none that a Llama model has.
    """
    if gguf_name in OUTER_NAMES:
        return OUTER_NAMES[gguf_name]
    prefix, _, rest = gguf_name.partition(".")
    block, _, inner = rest.partition(".")
    if prefix != "blk" or not block.isdecimal():
        raise KeyError(gguf_name)
    return f"model.layers.{block}.{BLOCK_NAMES[inner]}"


def unpermute(weight: Any, heads: int) -> Any:
    """Undo the row order that GGUF gives to the query and key projections.

    GGUF interleaves the two halves of each head's rows (llama.cpp rotates neighbouring
    pairs); transformers keeps the halves apart. weight: float[heads·head_size, hidden].
    """
    rows = weight.shape[0]
    pairs = weight.reshape(heads, rows // heads // 2, 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def _field(reader: Any, key: str, default: Any = None) -> Any:
    field = reader.get_field(key)
    if field is None:
        if default is None:
            raise SystemExit(f"the GGUF file has no metadata field {key!r}; expected a llama model")
        return default
    return field.contents()


def llama_config(reader: Any, tied: bool, vocabulary_size: int) -> dict[str, Any]:
    """The `config.json` of the model, from the GGUF file's metadata."""
    architecture = _field(reader, "general.architecture")
    if architecture != "llama":
        raise SystemExit(f"expected a GGUF file of architecture 'llama', found {architecture!r}")
    heads = int(_field(reader, "llama.attention.head_count"))
    hidden = int(_field(reader, "llama.embedding_length"))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": int(_field(reader, "llama.feed_forward_length")),
        "num_hidden_layers": int(_field(reader, "llama.block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(_field(reader, "llama.attention.head_count_kv")),
        "head_dim": hidden // heads,
        "max_position_embeddings": int(_field(reader, "llama.context_length")),
        "rms_norm_eps": float(f"{_field(reader, 'llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": float(_field(reader, "llama.rope.freq_base", 10000.0)),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "vocab_size": vocabulary_size,
        "bos_token_id": int(_field(reader, "tokenizer.ggml.bos_token_id")),
        "eos_token_id": int(_field(reader, "tokenizer.ggml.eos_token_id")),
        "torch_dtype": "float32",
    }


def read_weights(reader: Any, heads: int, key_value_heads: int) -> dict[str, Any]:
    """All tensors, dequantised to float32, in transformers' names and row order."""
    import numpy
    import torch
    from gguf.quants import dequantize

    weights: dict[str, Any] = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        # GGUF stores shapes innermost first; numpy and torch want them outermost first.
        values = values.reshape([int(n) for n in reversed(tensor.shape)])
        if tensor.name.endswith("attn_q.weight"):
            values = unpermute(values, heads)
        elif tensor.name.endswith("attn_k.weight"):
            values = unpermute(values, key_value_heads)
        # A copy, since views into the mapped file cannot be written to (torch warns).
        owned = numpy.array(values, dtype=numpy.float32, order="C")
        weights[llama_name(tensor.name)] = torch.from_numpy(owned)
    return weights


def make_tokenizer_config_portable(path: pathlib.Path) -> None:
    """Drop how it was loaded here, and name a class that every transformers knows."""
    config = json.loads(path.read_text())
    for key in ("is_local", "local_files_only", "backend"):
        config.pop(key, None)
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config["model_max_length"] = min(config.get("model_max_length", 8192), 8192)
    path.write_text(json.dumps(config, indent=2) + "\n")


def main(arguments: list[str]) -> None:
    """Read the GGUF file, write the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args(arguments)

    from gguf import GGUFReader
    from safetensors.torch import save_file
    from transformers import AutoTokenizer

    reader = GGUFReader(str(options.gguf))
    heads = int(_field(reader, "llama.attention.head_count"))
    key_value_heads = int(_field(reader, "llama.attention.head_count_kv"))
    weights = read_weights(reader, heads, key_value_heads)
    embedding = weights["model.embed_tokens.weight"]
    config = llama_config(reader, "lm_head.weight" not in weights, int(embedding.shape[0]))

    options.folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, str(options.folder / "model.safetensors"), metadata={"format": "pt"})
    tokenizer = AutoTokenizer.from_pretrained(
        str(options.gguf.parent), gguf_file=options.gguf.name, local_files_only=True
    )
    tokenizer.save_pretrained(str(options.folder))
    make_tokenizer_config_portable(options.folder / "tokenizer_config.json")
    ids = {key: config[key] for key in ("bos_token_id", "eos_token_id")}
    for name, content in (("config.json", config), ("generation_config.json", ids)):
        (options.folder / name).write_text(json.dumps(content, indent=2) + "\n")
    print(f"{len(weights)} tensors, vocabulary {embedding.shape[0]}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
