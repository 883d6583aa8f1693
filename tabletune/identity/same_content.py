"""A model's content in the notation that another record uses for it."""

from collections.abc import Mapping

from tabletune.identity.artifact import COMMIT_PATTERN, content_hash, identify


def content_as(
    wanted: str,
    name: str,
    revision: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """The content of the model `name`, written as `wanted` is: `revision:…` or `sha256:…`.

    The same model may be known by its commit here and by its folder there (an engine that is
    offline replaces a hub name by the folder of its snapshot). Where it has no such notation
    the one that it has is returned.

    Raises:
        ArtifactError: no such model. OSError: its files cannot be read.
    """
    artifact = identify(name, revision, require_weights=False, environment=environment)
    if artifact.content.partition(":")[0] == wanted.partition(":")[0]:
        return artifact.content
    if wanted.startswith("sha256:"):
        return f"sha256:{content_hash(name, artifact.folder)}"
    folder = artifact.folder.absolute()
    if folder.parent.name == "snapshots" and COMMIT_PATTERN.fullmatch(folder.name):
        return f"revision:{folder.name}"
    return artifact.content
