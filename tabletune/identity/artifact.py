"""Identifies a model or drafter by its content, in seconds also for a hundred gigabytes.

A model of the Hugging Face cache is its commit. A folder is a hash over its small files
(config, tokenizer, chat template) and, of each weight file, the name, the size, the header
(safetensors: names, types and shapes of all tensors) and a few samples of the weights, so
that a retrained model of the same shape is told apart.
"""

import hashlib
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from tabletune.records.fingerprint import ModelFacts

#: Files hashed whole, if they are there.
SMALL_FILES: Final = (
    "config.json",
    "generation_config.json",
    "hf_quant_config.json",
    "quantize_config.json",
    "params.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tekken.json",
    "chat_template.jinja",
    "chat_template.json",
)
WEIGHT_SUFFIXES: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
#: No tokenizer or config is larger; a bigger file of such a name is a mistake.
SMALL_FILE_LIMIT_BYTES: Final = 256 << 20
HEADER_LIMIT_BYTES: Final = 256 << 20
OPAQUE_HEAD_BYTES: Final = 1 << 20
SAMPLES: Final = 16
SAMPLE_BYTES: Final = 4096
HUB_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
COMMIT_PATTERN: Final = re.compile(r"[0-9a-f]{40}")
#: Where configs of composed models keep the language model's part.
NESTED_CONFIGS: Final = (
    "text_config",
    "transformer_layer_config",
    "llm_config",
    "language_config",
    "thinker_config",
)


class ArtifactError(Exception):
    """A model cannot be identified; the message says what is wrong. Attributes: name."""

    def __init__(self, name: str, expected: str, found: str, advice: str) -> None:
        self.name = name
        super().__init__(f"expected {expected} at {name!r}, found {found}; {advice}")


class Artifact(NamedTuple):
    """A model or drafter.

    name: as given. folder: where its files are. source: "hub" or "folder". content:
    `revision:COMMIT` or `sha256:HASH`. The rest is of its config; None if not stated.
    weight_bytes: size of all weight files together.
    """

    name: str
    folder: pathlib.Path
    source: Literal["hub", "folder"]
    content: str
    architecture: str
    vocabulary_size: int | None
    draft_vocabulary_size: int | None
    hidden_size: int | None
    target_hidden_size: int | None
    max_positions: int | None
    dtype: str | None
    weight_bytes: int

    def model_facts(self) -> ModelFacts:
        """Its part of a fingerprint."""
        return ModelFacts(
            label=self.name,
            content=self.content,
            architecture=self.architecture,
            vocabulary_size=self.vocabulary_size or 0,
        )


def identify(
    name: str,
    revision: str | None = None,
    require_weights: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Artifact:
    """Identify a folder or a model of the local Hugging Face cache; nothing is downloaded.

    revision: branch, tag or commit of a hub model; None is `main`. require_weights: False
    for dummy weights (`--load-format dummy`). environment: HF_HOME, HF_HUB_CACHE.

    Raises:
        ArtifactError: no such model, no readable config, or no weights.
    """
    folder = pathlib.Path(name).expanduser()
    if folder.is_dir():
        source, commit = "folder", None
    elif folder.exists():
        raise ArtifactError(
            name, "a folder with a config.json", "a file", "give the folder that holds it"
        )
    elif _looks_like_path(name):
        raise ArtifactError(name, "a model's folder", "nothing", "check the path")
    else:
        source = "hub"
        folder, commit = _snapshot(name, revision or "main", environment)
    config = read_config(name, folder)
    try:
        weights = weight_files(folder)
        weight_bytes = sum(path.stat().st_size for path in weights)
        content = f"revision:{commit}" if commit else f"sha256:{content_hash(name, folder)}"
    except OSError as error:
        raise ArtifactError(
            name, "readable files", str(error), "correct the permissions or copy it again"
        ) from error
    if require_weights and not weights:
        raise ArtifactError(
            name,
            f"weight files ({', '.join(WEIGHT_SUFFIXES)})",
            "none",
            "download the model again, or use --load-format dummy if that is meant",
        )
    return Artifact(
        name=name,
        folder=folder,
        source=source,
        content=content,
        architecture=_architecture(config),
        vocabulary_size=_number(config, "vocab_size"),
        draft_vocabulary_size=_number(config, "draft_vocab_size"),
        hidden_size=_number(config, "hidden_size", "n_embd", "d_model"),
        target_hidden_size=_number(config, "target_hidden_size"),
        max_positions=_number(config, "max_position_embeddings", "n_positions", "max_seq_len"),
        dtype=_text(config, "dtype", "torch_dtype"),
        weight_bytes=weight_bytes,
    )


def read_config(name: str, folder: pathlib.Path) -> dict[str, Any]:
    """The content of a model's config.json.

    Raises:
        ArtifactError: it is missing, unreadable or no JSON object.
    """
    path = folder / "config.json"
    expected = "a config.json in the model's folder"
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ArtifactError(
            name, expected, "none", "check the path; GGUF and Mistral formats need one too"
        ) from error
    except (OSError, ValueError) as error:
        raise ArtifactError(name, expected, f"one that fails: {error}", "repair it") from error
    if not isinstance(config, dict):
        raise ArtifactError(name, expected, f"{type(config).__name__} in it", "repair it")
    return config


def weight_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The weight files directly in a folder, by name."""
    return sorted(path for path in folder.iterdir() if path.suffix in WEIGHT_SUFFIXES)


def content_hash(name: str, folder: pathlib.Path) -> str:
    """sha256 over what makes up the model in a folder (see the top of this file).

    Raises:
        ArtifactError: a weight file is damaged. OSError: a file cannot be read.
    """
    digest = hashlib.sha256()
    indices = sorted(path.name for path in folder.glob("*.index.json"))
    for small in (*SMALL_FILES, *indices):
        path = folder / small
        if path.is_file():
            if path.stat().st_size > SMALL_FILE_LIMIT_BYTES:
                raise ArtifactError(
                    name, f"a small {small}", f"{path.stat().st_size} bytes", "check that file"
                )
            with path.open("rb") as file:
                _add(digest, small, hashlib.file_digest(file, "sha256").hexdigest())
    for path in weight_files(folder):
        size = path.stat().st_size
        _add(digest, path.name, str(size), hashlib.sha256(_excerpt(name, path, size)).hexdigest())
    return digest.hexdigest()


def _add(digest: Any, *parts: str) -> None:
    digest.update(("\0".join(parts) + "\n").encode())


def _excerpt(name: str, path: pathlib.Path, size: int) -> bytes:
    """A weight file's header and samples of what follows it."""
    with path.open("rb") as file:
        if path.suffix == ".safetensors":
            head = file.read(8)
            length = int.from_bytes(head, "little")
            if len(head) < 8 or length > min(size - 8, HEADER_LIMIT_BYTES):
                raise ArtifactError(
                    name,
                    f"a whole safetensors file {path.name}",
                    f"{size} bytes with a header said to be {length} long",
                    "download it again (a Git LFS pointer looks like this too)",
                )
            head += file.read(length)
        else:
            head = file.read(OPAQUE_HEAD_BYTES)
        parts = [head]
        start, span = len(head), size - len(head)
        for sample in range(SAMPLES if span > 0 else 0):
            file.seek(start + span * sample // SAMPLES)
            parts.append(file.read(SAMPLE_BYTES))
    return b"".join(parts)


def _looks_like_path(name: str) -> bool:
    return name.startswith(("/", ".", "~")) or not HUB_ID_PATTERN.fullmatch(name)


def hub_cache(environment: Mapping[str, str]) -> pathlib.Path:
    """The folder in which huggingface_hub keeps models."""
    if environment.get("HF_HUB_CACHE"):
        return pathlib.Path(environment["HF_HUB_CACHE"]).expanduser()
    home = environment.get("HF_HOME")
    cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
    root = pathlib.Path(home) if home else pathlib.Path(cache) / "huggingface"
    return root.expanduser() / "hub"


def _snapshot(
    name: str, revision: str, environment: Mapping[str, str] | None
) -> tuple[pathlib.Path, str]:
    """The folder and commit of a hub model in the local cache."""
    cache = hub_cache(os.environ if environment is None else environment)
    repository = cache / ("models--" + name.replace("/", "--"))
    advice = f"download it first, for example with: hf download {name}"
    if not repository.is_dir():
        raise ArtifactError(
            name,
            f"a folder or a model of the local Hugging Face cache ({cache})",
            "neither",
            advice,
        )
    commit = revision
    if not COMMIT_PATTERN.fullmatch(revision):
        try:
            commit = (repository / "refs" / revision).read_text().strip()
        except OSError as error:
            raise ArtifactError(name, f"the revision {revision!r}", str(error), advice) from error
    if not COMMIT_PATTERN.fullmatch(commit):
        raise ArtifactError(name, f"a commit for revision {revision!r}", repr(commit), advice)
    folder = repository / "snapshots" / commit
    if not folder.is_dir():
        raise ArtifactError(name, f"a snapshot of commit {commit}", "none", advice)
    return folder, commit


def _values(config: dict[str, Any], keys: tuple[str, ...]) -> list[Any]:
    """The keys' values, first at the top, then in the nested configs."""
    places = [config]
    for nested in NESTED_CONFIGS:
        inner = config.get(nested)
        if isinstance(inner, dict):
            places += [inner, *(part for part in [inner.get("text_config")] if part)]
    return [place[key] for place in places for key in keys if place.get(key) is not None]


def _number(config: dict[str, Any], *keys: str) -> int | None:
    found = _values(config, keys)
    return next((value for value in found if type(value) is int), None)


def _text(config: dict[str, Any], *keys: str) -> str | None:
    found = _values(config, keys)
    return next((value for value in found if isinstance(value, str)), None)


def _architecture(config: dict[str, Any]) -> str:
    names = config.get("architectures")
    if isinstance(names, list) and names and isinstance(names[0], str):
        return names[0]
    kind = config.get("speculators_model_type") or config.get("model_type")
    return kind if isinstance(kind, str) else "unknown"
