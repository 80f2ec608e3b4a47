"""`open_storage`: the storage of a path or URI."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from emberstate.errors import StorageError
from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage
from emberstate.storage.memory import MemoryStorage
from emberstate.storage.object_store import S3Storage

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_HELP: Final = "Use a path, file:///path, s3://bucket/prefix or memory://"
_NOT_YET: Final = ("gs", "gcs", "hdfs", "abfs", "abfss", "wasb", "wasbs")
_OTHER_NAMES: Final = ("s3a", "s3n")


def open_storage(
    uri: str | os.PathLike[str],
    *,
    writer: str | None = None,
    client_options: Mapping[str, Any] | None = None,
) -> Storage:
    """Open the storage of a path, `file:///path`, `s3://bucket/prefix` or `memory://`.

    Reads and writes nothing; a writer calls `check_conditional_create` next. A plain path is used as it is, blanks
    included; in a `file:` URI `%20` and the like are decoded. `client_options` are boto3's.

    >>> open_storage("memory://").describe()
    'memory://'
    >>> open_storage("gs://bucket/checkpoints")
    Traceback (most recent call last):
    emberstate.errors.StorageError: [Errno 95] 'gs://bucket/checkpoints' is rejected: gs is not supported...
    """
    text = os.fspath(uri)
    if not text:
        raise _refused(text, "it is empty")
    match = _SCHEME.fullmatch(text) if isinstance(uri, str) else None
    if match is None:
        return LocalStorage(text, writer=writer)
    scheme, slashes, rest = match[1].lower(), match[2], match[3]
    if scheme == "file":
        return LocalStorage(_file_path(text, slashes, rest), writer=writer)
    if scheme in _NOT_YET:
        raise _refused(text, f"{scheme} is not supported", errno.ENOTSUP)
    if scheme in _OTHER_NAMES:
        raise _refused(
            text, "credentials and endpoint are boto3's, not Hadoop's. Set them and write s3://"
        )
    if scheme not in ("s3", "memory"):
        if slashes:
            raise _refused(text, f"the scheme {scheme} is unknown", errno.ENOTSUP)
        return LocalStorage(text, writer=writer)  # a colon in a file name
    if not slashes:
        raise _refused(text, f"after {scheme}: two slashes are missing")
    if scheme == "memory":
        if rest:
            raise _refused(text, "memory:// takes no name: every call opens a new storage")
        return MemoryStorage(writer=writer)
    bucket, _, prefix = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise _refused(text, f"{bucket!r} is not the name of a bucket")
    if "?" in prefix or "#" in prefix:
        raise _refused(text, "a prefix with ? or # looks like an option. Pass client_options")
    return S3Storage(bucket, prefix, client_options=client_options, writer=writer)


def _file_path(text: str, slashes: str | None, rest: str) -> str:
    host, slash, path = rest.partition("/") if slashes else ("", rest[:1], rest[1:])
    if slash != "/":
        raise _refused(text, "a file URI has an absolute path")
    if host not in ("", "localhost"):
        raise _refused(text, f"it names the host {host!r}; a local path follows file:///")
    return "/" + unquote(path, errors="surrogateescape")


def _refused(text: str, why: str, number: int = errno.EINVAL) -> StorageError:
    return StorageError(number, f"{text!r} is rejected: {why}. {_HELP}.", option="uri", found=text)
