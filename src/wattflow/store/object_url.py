"""Where objects are kept, by URL: a folder or an S3-compatible store."""

from __future__ import annotations

from pathlib import Path

from wattflow.model.errors import InvalidInput
from wattflow.store.objects import FolderObjects, Objects


def open_objects(url: str | Path) -> Objects:
    """Open a folder by its path, or an S3-compatible store by ``s3://BUCKET/PREFIX?endpoint=URL``."""
    if str(url).startswith("s3://"):
        from wattflow.store.s3 import open_s3

        return open_s3(str(url))
    if "://" in str(url):
        raise InvalidInput(str(url), "objects are kept in a folder (give its path) or in an S3 store (s3://BUCKET)")
    return FolderObjects(Path(url))
