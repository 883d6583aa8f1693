"""What boto3 raises, as the `StoreError` that says what to do about it."""

from typing import Any, Final

from tabletune.store.errors import StoreError, StoreFull, StoreUnreachable, StoreUnwritable
from tabletune.store.s3_url import S3Place

_FULL_CODES: Final = {"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "507"}
_SKEWED_CODE: Final = "RequestTimeTooSkewed"
_REGION_CODES: Final = {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}


def status_and_code(error: Any) -> tuple[int, str]:
    answer = error.response
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return int(status), str(answer.get("Error", {}).get("Code", ""))


def explain_answer(error: Any, expected: str, place: S3Place) -> StoreError:
    status, code = status_and_code(error)
    message = str(error.response.get("Error", {}).get("Message", ""))[:200]
    found = f"status {status}, {code}{': ' if message else ''}{message}"
    if code == "NoSuchBucket":
        return StoreError(
            expected, f"no bucket {place.bucket!r}", "make the bucket, or name another"
        )
    if code in _FULL_CODES or status == 507:
        advice = "free some space and try again; what was in force before still is"
        return StoreFull(expected, found, advice)
    if status in (401, 403):
        advice = (
            "check the credentials (AWS_ACCESS_KEY_ID, a profile or a role) and that they may "
            "GetObject, PutObject and ListBucket here; without ListBucket a missing object "
            "looks forbidden; also check this machine's clock"
        )
        if code == _SKEWED_CODE:
            advice = "set this machine's clock, or the server's: they are far apart"
        return StoreUnwritable(expected, found, advice)
    if status in (301, 307) or code in _REGION_CODES:
        return StoreError(expected, found, "check the bucket's region and the endpoint")
    if status >= 500 or status == 429 or code in ("SlowDown", "RequestTimeout"):
        return unreachable(expected, found)
    return StoreError(expected, found, "look at the server's log")


def explain_local(error: Exception, expected: str) -> StoreError:
    from botocore.exceptions import (
        ConnectionError as NoConnection,
    )
    from botocore.exceptions import (
        HTTPClientError,
        IncompleteReadError,
        NoCredentialsError,
        PartialCredentialsError,
    )

    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        advice = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role"
        return StoreUnwritable(expected, str(error), advice)
    if isinstance(error, NoConnection | HTTPClientError | IncompleteReadError):
        return unreachable(expected, str(error))
    return StoreError(expected, str(error), "correct the store's URL or the AWS configuration")


def unreachable(expected: str, found: str) -> StoreUnreachable:
    advice = "check the endpoint, the network and the server, then try again"
    return StoreUnreachable(expected, found, advice)


def streaming_error() -> type[Exception]:
    """What reading a body past botocore's own wrapper raises when it breaks off."""
    from urllib3.exceptions import HTTPError

    return HTTPError
