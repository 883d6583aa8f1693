"""A source over http(s)://: read only, by the standard library alone.

Any web server that shows a store's folder will do. Nothing is listed and nothing written.
"""

import contextlib
import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import IO, Final, NoReturn
from urllib.parse import quote, urlsplit

from tabletune.store.bounded import read_bounded
from tabletune.store.errors import BadName, StoreError, StoreUnreachable, StoreUnwritable
from tabletune.store.source import Blob

MAX_REDIRECTS: Final = 3


class HttpSource:
    """The files below a URL; `Source` says what it does.

    A proxy is taken from the environment, certificate authorities from SSL_CERT_FILE.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float = 5.0,
        body_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """timeout_s: until connected, and between two pieces. body_s: for a whole object.

        Raises:
            BadName: no such URL, or one with credentials in it.
        """
        self._url = _checked(url).rstrip("/")
        self._timeout_s, self._body_s, self._clock = timeout_s, body_s, clock
        self._opener = _opener()

    @property
    def url(self) -> str:
        """See `Source.url`."""
        return self._url

    def read(self, key: str, limit_bytes: int, known_tag: str = "") -> Blob | None:
        """See `Source.read`."""
        where = f"{self._url}/{quote(key)}"
        headers = {"Accept-Encoding": "identity", "User-Agent": "tabletune"}
        if known_tag.startswith(('"', 'W/"')):
            headers["If-None-Match"] = known_tag
        try:
            request = urllib.request.Request(where, headers=headers)
            with contextlib.closing(self._opener.open(request, timeout=self._timeout_s)) as answer:
                length = answer.headers.get("Content-Length", "")
                data = read_bounded(
                    answer.read1,
                    where,
                    limit_bytes,
                    int(length) if length.isdecimal() else None,
                    self._body_s,
                    self._clock,
                )
                tag = answer.headers.get("ETag") or hashlib.sha256(data).hexdigest()
        except urllib.error.HTTPError as error:
            with contextlib.closing(error):
                if error.code == 304 and known_tag:
                    return Blob(b"", known_tag, unchanged=True)
                if error.code in (404, 410):
                    return None
                raise _explain(where, error) from error
        # ValueError: a host that no name server could know, also one that a redirect names.
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            advice = "check the address, the network and the server; it is asked again"
            raise StoreUnreachable(f"an answer from {where}", repr(reason), advice) from error
        # Without entity tags the content itself tells whether it has changed.
        return Blob(b"", tag, unchanged=True) if tag == known_tag else Blob(data, tag)

    def write(self, key: str, data: bytes) -> NoReturn:
        """See `Source.write`."""
        raise StoreUnwritable(
            f"to write {self._url}/{key}",
            "a source over HTTP, which is read only",
            "use s3:// or file:// where engines are to tell back",
        )


def _checked(url: str) -> str:
    expected = "a source's URL such as https://host/folder"
    try:
        parts = urlsplit(url)
        hostname, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadName(expected, f"{url!r} ({error})", "correct it") from error
    if "@" in parts.netloc:
        advice = "leave them out; let the server know the engines by their address or a proxy"
        raise BadName(expected, "one with credentials in it", advice)
    if parts.scheme not in ("http", "https") or not hostname or parts.query or parts.fragment:
        raise BadName(expected, repr(url), "correct it")
    return url


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a few redirects, from http to http(s) and from https to https only."""

    max_redirections = MAX_REDIRECTS
    max_repeats = 1

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        before, after = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if after != before and (before, after) != ("http", "https"):
            raise urllib.error.HTTPError(
                req.full_url,
                code,
                f"a redirect from {before} to {after} is not followed",
                headers,
                fp,
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """One that knows http and https only: no files, no FTP, no data URLs."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        _Redirects(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _explain(where: str, error: urllib.error.HTTPError) -> StoreError:
    found = f"status {error.code}: {error.reason}"[:200]
    if error.code in (401, 403, 407):
        return StoreUnwritable(f"to read {where}", found, "let this engine read it")
    if error.code >= 500 or error.code in (408, 429):
        return StoreUnreachable(f"to read {where}", found, "it is asked again")
    return StoreError(f"to read {where}", found, "check the address and the server")
