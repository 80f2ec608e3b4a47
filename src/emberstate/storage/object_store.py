"""Storage in S3, or in a server that speaks its protocol: `pip install emberstate[s3]`.

A write is one `PutObject` with `If-None-Match: *`, which S3 executes atomically. If the reply is lost, botocore sends
the request again, and S3 rejects the second one (412) because of the first one's object. So after a repeated request
that was rejected, the object is read back and compared; a request that was sent once and rejected has failed.

An object is durable when the reply arrives. S3 lists and reads consistently since the end of 2020. Credentials, region
and endpoint are boto3's: environment, profiles, `client_options`.

Thread safety: a boto3 client may be shared between threads.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from emberstate.errors import InstallationError, StorageError, StorageNotFoundError
from emberstate.storage.base import BaseStorage, explain
from emberstate.storage.interface import Paths, StorageOutcomeUnknownError
from emberstate.storage.paths import MAX_PATH_BYTES, check_path

#: The limit of one PutObject. More would need a multipart upload, whose parts cost money until aborted.
MAX_OBJECT_BYTES: Final = 5 << 30

_ATTEMPTS: Final = 5
_PAUSE_SECONDS: Final = 0.1
_MISSING: Final = ("NoSuchKey", "404", "NotFound")
_NUMBERS: Final = {
    "NoSuchBucket": errno.ENOENT,
    "AccessDenied": errno.EACCES,
    "403": errno.EACCES,
    "NotImplemented": errno.ENOTSUP,
    "SlowDown": errno.EAGAIN,
}


class S3Storage(BaseStorage):
    """Objects of a bucket below a prefix.

    `client_options` go to `boto3.client("s3", …)`. Tests pass a `client` instead.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        client_options: Mapping[str, Any] | None = None,
        client: Any = None,
        writer: str | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(writer)
        self._bucket = bucket
        self._prefix = prefix.strip("/")
        if self._prefix:
            check_path(self._prefix, "prefix")
            if len(self._prefix.encode()) >= MAX_PATH_BYTES:
                what = f"the prefix {prefix!r} has {MAX_PATH_BYTES} bytes or more"
                raise StorageError(errno.EINVAL, what, path=self._prefix)
        self._client = _new_client(client_options) if client is None else client
        self._failures = import_module("botocore.exceptions")
        self._pause = pause

    def describe(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def _put_new(self, path: str, parts: Sequence[memoryview]) -> None:
        body = b"".join(parts)
        if len(body) > MAX_OBJECT_BYTES:
            raise OSError(errno.EFBIG, f"{len(body)} bytes; one request takes at most {MAX_OBJECT_BYTES}")
        repeated = False
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._client.put_object(Bucket=self._bucket, Key=self._key(path), Body=body, IfNoneMatch="*")
                return
            except self._failures.ClientError as error:
                status, code, retries = _answer(error)
                repeated = repeated or retries > 0
                if status == 409 and attempt < _ATTEMPTS:
                    # A concurrent request for this key. Nothing was written; S3 asks for a retry.
                    self._pause(_PAUSE_SECONDS * attempt)
                    continue
                if repeated or (status >= 500 and code != "NotImplemented"):
                    raise self._unknown(path, error) from error
                if status == 412:
                    raise self._taken(path) from error
                raise self._explained(error, f"writing {path}") from error
            except (self._failures.NoCredentialsError, self._failures.ParamValidationError) as error:
                raise self._explained(error, f"writing {path}") from error  # not sent
            except self._failures.BotoCoreError as error:
                # No reply. Even after "cannot connect", an earlier attempt may have arrived.
                raise self._unknown(path, error) from error

    def _get(self, path: str, limit: int | None) -> bytes:
        def check(size: int) -> None:
            if limit is not None and size > limit:
                raise self._too_large(path, size, limit)

        return self._fetch(path, {}, check)

    def _get_range(self, path: str, offset: int, length: int) -> bytes:
        size = self._size(path)
        if offset + length > size:
            raise self._too_short(path, size, offset, length)
        if not length:
            return b""

        def check(found: int) -> None:
            if found != length:
                raise self._too_short(path, size, offset, length)

        return self._fetch(path, {"Range": f"bytes={offset}-{offset + length - 1}"}, check)

    def _fetch(self, path: str, options: Mapping[str, str], check: Callable[[int], None]) -> bytes:
        """Return the body of an object or of a range; `check` gets its length before it is read.

        botocore retries requests, but not the reading of a body.
        """
        doing = f"reading {path}"
        for attempt in range(1, _ATTEMPTS + 1):
            with self._translated(doing):
                answer = self._client.get_object(Bucket=self._bucket, Key=self._key(path), **options)
            with contextlib.closing(answer["Body"]) as body:
                check(answer["ContentLength"])
                try:
                    data: bytes = body.read()
                    return data
                except self._failures.BotoCoreError as error:
                    if attempt == _ATTEMPTS:
                        raise self._explained(error, doing) from error
            self._pause(_PAUSE_SECONDS * attempt)
        raise AssertionError("the last attempt returns or raises")

    def _size(self, path: str) -> int:
        with self._translated(f"looking up {path}"):
            size: int = self._client.head_object(Bucket=self._bucket, Key=self._key(path))["ContentLength"]
            return size

    def _list(self, folder: str) -> Paths:
        start = self._key(folder + "/") if folder else self._key("")
        with self._translated(f"listing {folder or 'everything'}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=start)
            skip = len(self._key(""))
            return [found["Key"][skip:] for page in pages for found in page.get("Contents", ())]

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:  # one by one: some servers want a header on DeleteObjects that boto3 no longer sends
            with self._translated(f"deleting {path}"):
                self._client.delete_object(Bucket=self._bucket, Key=self._key(path))

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}" if self._prefix else path

    @contextlib.contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (self._failures.ClientError, self._failures.BotoCoreError) as error:
            raise self._explained(error, doing) from error

    def _explained(self, error: Any, doing: str, kind: type[StorageError] = StorageError) -> StorageError:
        number, said, code = errno.ECONNABORTED, str(error), None
        if isinstance(error, self._failures.ClientError):
            _, code, _ = _answer(error)
            kind = StorageNotFoundError if code in _MISSING else kind
            number = _NUMBERS.get(code, errno.ENOENT if code in _MISSING else errno.EPROTO)
        elif isinstance(error, self._failures.NoCredentialsError):
            number = errno.EACCES
        return explain(OSError(number, said.rstrip(".")), f"{doing} in {self.describe()}", kind).located(found=code)

    def _unknown(self, path: str, error: Exception) -> StorageError:
        doing = f"writing {path}, which may exist all the same or appear later,"
        return self._explained(error, doing, StorageOutcomeUnknownError)


def _answer(error: Any) -> tuple[int, str, int]:
    """Return status, error code, and how often the request was repeated."""
    about = error.response.get("ResponseMetadata", {})
    code = str(error.response.get("Error", {}).get("Code", ""))
    return int(about.get("HTTPStatusCode", 0)), code, int(about.get("RetryAttempts", 0))


def _new_client(options: Mapping[str, Any] | None) -> Any:
    try:
        boto3, config = import_module("boto3"), import_module("botocore.config")
    except ImportError as error:
        raise InstallationError(
            "s3:// needs boto3, which is not installed. Run: pip install emberstate[s3]"
        ) from error
    given = dict(options or {})
    settings = config.Config(
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS}, connect_timeout=10, read_timeout=60
    )
    if "config" in given:
        settings = settings.merge(given.pop("config"))
    try:
        return boto3.client("s3", config=settings, **given)
    except import_module("botocore.exceptions").BotoCoreError as error:
        why = f"opening s3://: {error} Set AWS_REGION, or give client_options."
        raise StorageError(errno.EINVAL, why) from error
