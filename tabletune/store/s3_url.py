"""The URL of a store in S3: `s3://bucket/prefix?endpoint=…&region=…&ca=…&style=…`."""

import re
from dataclasses import dataclass
from typing import Final, Literal, cast
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from tabletune.store.errors import BadName

OPTIONS: Final = ("endpoint", "region", "ca", "style")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True)
class S3Place:
    """Where in S3 a store is.

    prefix: without slashes at its ends; empty for the bucket itself. endpoint: the server's
    URL, empty for AWS or what AWS_ENDPOINT_URL_S3 says. region: empty for what the
    environment says. ca: a file of certificate authorities, empty for the system's (or
    AWS_CA_BUNDLE). style: how the bucket is addressed; `auto` is `path` with an endpoint.
    """

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = ""
    ca: str = ""
    style: Literal["auto", "path", "virtual"] = "auto"

    @property
    def url(self) -> str:
        """The URL that names this place; `parse_s3_url` reads it."""
        options = {name: getattr(self, name) for name in OPTIONS}
        given = {k: v for k, v in options.items() if v not in ("", "auto")}
        path = f"/{quote(self.prefix)}" if self.prefix else ""
        query = f"?{urlencode(given, safe=':/')}" if given else ""
        return f"s3://{self.bucket}{path}{query}"

    def key(self, key: str) -> str:
        """The key of an object of the store, in the bucket."""
        return f"{self.prefix}/{key}" if self.prefix else key


def parse_s3_url(url: str) -> S3Place:
    """The place that a URL names.

    Raises:
        BadName: it is no such URL, or has credentials in it.
    """
    expected = "a store's URL such as s3://bucket/prefix?endpoint=https://host:port"
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        endpoint = urlsplit(dict(pairs).get("endpoint", ""))
    except ValueError as error:
        raise BadName(expected, f"{url!r} ({error})", "correct it") from error
    if "@" in parts.netloc or "@" in endpoint.netloc:
        # The URL is not repeated: it holds a secret.
        advice = "leave them out; they come from the environment, a profile or a role"
        raise BadName(expected, "one with credentials in it", advice)
    prefix = unquote(parts.path).strip("/")
    options = dict(pairs)
    advice = "correct it"
    if parts.scheme != "s3" or not _BUCKET.fullmatch(parts.netloc) or parts.fragment:
        raise BadName(expected, repr(url), "a bucket has 3 to 63 lower-case letters, digits, . -")
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        raise BadName(expected, repr(url), "leave empty parts, '.' and '..' out of the prefix")
    if len(options) != len(pairs) or set(options) - set(OPTIONS):
        raise BadName(expected, repr(url), f"each option once, of {', '.join(OPTIONS)}")
    if options.get("endpoint") and endpoint.scheme not in ("http", "https"):
        raise BadName(expected, repr(url), "an endpoint begins with http:// or https://")
    style = options.get("style", "auto")
    if style not in ("auto", "path", "virtual"):
        raise BadName(expected, repr(url), "style is auto, path or virtual")
    return S3Place(
        bucket=parts.netloc,
        prefix=prefix,
        endpoint=options.get("endpoint", "").rstrip("/"),
        region=options.get("region", ""),
        ca=options.get("ca", ""),
        style=cast(Literal["auto", "path", "virtual"], style),
    )
