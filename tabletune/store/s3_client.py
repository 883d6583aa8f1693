"""Makes the boto3 client of a place in S3."""

import dataclasses
import functools
import os
from dataclasses import dataclass
from typing import Any

from tabletune.store.errors import SupportMissing
from tabletune.store.s3_errors import explain_local
from tabletune.store.s3_url import S3Place


@dataclass(frozen=True)
class Patience:
    """How long a store is waited for; what a person or a flow can bear.

    connect_s, read_s: until connected, and between two answers of the server. body_s: until
    an object is read, however steadily it trickles. attempts: tries of one request in all.
    """

    connect_s: float = 5.0
    read_s: float = 15.0
    body_s: float = 60.0
    attempts: int = 4


def shared_client(place: S3Place, patience: Patience) -> Any:
    """The client of a place; made once for all places at the same server and credentials.

    Clients are costly (seconds on a busy machine) and may be shared by threads, but not by
    forked processes.
    """
    credentials = tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_")))
    server = dataclasses.replace(place, bucket="", prefix="")
    return _client(server, patience, credentials, os.getpid())


@functools.lru_cache(maxsize=32)
def _client(
    server: S3Place, patience: Patience, credentials: tuple[tuple[str, str], ...], process: int
) -> Any:
    return make_client(server, patience)


def make_client(place: S3Place, patience: Patience) -> Any:
    """A boto3 client for a place.

    Raises:
        SupportMissing: boto3 is not installed.
        StoreError: its configuration is wrong.
    """
    try:
        import boto3.session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise SupportMissing(
            "boto3 to be installed, for a store in S3",
            str(error),
            "install tabletune[s3] (into an engine's environment: "
            "tabletune engine create … --with s3)",
        ) from error
    style = place.style
    if style == "auto" and place.endpoint:
        style = "path"
    config = Config(
        connect_timeout=patience.connect_s,
        read_timeout=patience.read_s,
        retries={"mode": "standard", "total_max_attempts": patience.attempts},
        s3={"addressing_style": style, "payload_signing_enabled": True},
        # Newer checksums are unknown to many servers. The signed payload's hash guards what is
        # sent, and names are hashes of what is read.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra="tabletune",
    )
    try:
        session = boto3.session.Session()
        region = place.region or session.region_name
        return session.client(
            "s3",
            endpoint_url=place.endpoint or None,
            region_name=region or ("us-east-1" if place.endpoint else None),
            verify=place.ca or None,
            config=config,
        )
    except (BotoCoreError, ValueError) as error:
        raise explain_local(error, f"to use {place.url}") from error
