"""Objects in S3 by key: bounded in time and size, conditional, errors in words."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from tabletune.store.bounded import read_bounded
from tabletune.store.s3_client import Patience, shared_client
from tabletune.store.s3_errors import (
    explain_answer,
    explain_local,
    status_and_code,
    streaming_error,
    unreachable,
)
from tabletune.store.s3_url import S3Place
from tabletune.store.source import Blob

_LOST_CODES: Final = {"PreconditionFailed", "412"}


class S3Objects:
    """The objects below a prefix of a bucket.

    Makes no request until it is used. Threads may share it.
    """

    def __init__(
        self,
        place: S3Place,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.place = place
        self.patience = patience or Patience()
        self._clock = clock
        self._client: Any = None

    def get(self, key: str, limit_bytes: int, known_tag: str = "") -> Blob | None:
        """See `Source.read`."""
        client = self._connected()
        condition = {"IfNoneMatch": known_tag} if known_tag else {}
        with self._explained(f"to read {self._where(key)}"):
            try:
                answer = client.get_object(
                    Bucket=self.place.bucket, Key=self.place.key(key), **condition
                )
            except client.exceptions.ClientError as error:
                status, code = status_and_code(error)
                if status == 304:
                    return Blob(b"", known_tag, unchanged=True)
                # A bucket that is missing has another code; it is no missing object.
                if status == 404 and code in ("NoSuchKey", "404", "NotFound"):
                    return None
                raise
            data = self._body(answer, key, limit_bytes)
        return Blob(data, str(answer.get("ETag", "")))

    def put(
        self, key: str, data: bytes, *, only_new: bool = False, only_over: str = ""
    ) -> str | None:
        """Write an object; its new tag, or None where the condition does not hold.

        Args:
            only_new: only if there is no such object.
            only_over: only over the object with this tag.
        """
        client = self._connected()
        condition: dict[str, str] = {}
        if only_new:
            condition["IfNoneMatch"] = "*"
        if only_over:
            condition["IfMatch"] = only_over
        with self._explained(f"to write {self._where(key)}"):
            try:
                answer = client.put_object(
                    Bucket=self.place.bucket,
                    Key=self.place.key(key),
                    Body=data,
                    ContentType="application/json",
                    **condition,
                )
            except client.exceptions.ClientError as error:
                status, code = status_and_code(error)
                # If-Match on a missing key is 404 on some servers; 409 is AWS's word for two
                # conditional writes that met.
                if condition and (
                    code in _LOST_CODES or (status in (404, 409) and code != "NoSuchBucket")
                ):
                    return None
                raise
        return str(answer.get("ETag", ""))

    def delete(self, key: str) -> None:
        """Remove an object; no error where there is none."""
        client = self._connected()
        with self._explained(f"to remove {self._where(key)}"):
            client.delete_object(Bucket=self.place.bucket, Key=self.place.key(key))

    def keys(self, prefix: str = "", page: int = 1000) -> Iterator[str]:
        """All keys that begin with `prefix`, a page at a time."""
        client = self._connected()
        start = len(self.place.key(""))
        with self._explained(f"to list {self._where(prefix)}"):
            pages = client.get_paginator("list_objects_v2").paginate(
                Bucket=self.place.bucket,
                Prefix=self.place.key(prefix),
                PaginationConfig={"PageSize": page},
            )
            for found in pages:
                for item in found.get("Contents", []):
                    yield str(item["Key"])[start:]

    def top_level(self) -> list[str]:
        """The first names below the prefix, at most some dozens; folders without their slash."""
        client = self._connected()
        with self._explained(f"to list {self._where('')}"):
            found = client.list_objects_v2(
                Bucket=self.place.bucket, Prefix=self.place.key(""), Delimiter="/", MaxKeys=50
            )
        start = len(self.place.key(""))
        names = [str(item["Key"])[start:] for item in found.get("Contents", [])]
        names += [str(item["Prefix"])[start:-1] for item in found.get("CommonPrefixes", [])]
        return sorted(name for name in names if name)

    def _body(self, answer: Any, key: str, limit_bytes: int) -> bytes:
        """The body of an answer.

        Raises:
            TooLarge: more than the limit.
            StoreUnreachable: it takes too long, or ends early.
        """
        with contextlib.closing(answer["Body"]) as body:
            length = answer.get("ContentLength")
            return read_bounded(
                # read1 gives what has arrived, where read waits for all that was asked for.
                getattr(getattr(body, "_raw_stream", None), "read1", body.read),
                self._where(key),
                limit_bytes,
                length if isinstance(length, int) else None,
                self.patience.body_s,
                self._clock,
            )

    def _where(self, key: str) -> str:
        return f"s3://{self.place.bucket}/{self.place.key(key)}"

    def _connected(self) -> Any:
        if self._client is None:
            self._client = shared_client(self.place, self.patience)
        return self._client

    @contextlib.contextmanager
    def _explained(self, expected: str) -> Iterator[None]:
        """Turn what boto3 raises into the `StoreError` that says what to do about it."""
        from botocore.exceptions import BotoCoreError, ClientError

        at = f" at {self.place.endpoint}" if self.place.endpoint else ""
        try:
            yield
        except ClientError as error:
            raise explain_answer(error, expected + at, self.place) from error
        except BotoCoreError as error:
            raise explain_local(error, expected + at) from error
        except (OSError, ValueError, streaming_error()) as error:
            raise unreachable(expected + at, repr(error)) from error
