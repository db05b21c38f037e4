"""Objects in an S3-compatible store: the signature, and what is refused before anything is sent."""

from __future__ import annotations

import datetime

import pytest

from wattflow.model.errors import InvalidInput
from wattflow.store.objects import open_objects
from wattflow.store.s3 import Keys, S3Objects, signed

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}


def test_a_signature_is_the_one_in_amazons_documentation() -> None:
    """'Signature Calculations for the Authorization Header', the example of GET Object."""
    headers = {"Host": "examplebucket.s3.amazonaws.com", "Range": "bytes=0-9"}
    when = datetime.datetime(2013, 5, 24, tzinfo=datetime.UTC)
    made = signed("GET", "/test.txt", headers, b"", when, "us-east-1", Keys.of(KEYS))
    assert made["authorization"].endswith(
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def test_keys_do_not_show_their_secret() -> None:
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in repr(Keys.of(KEYS))


@pytest.mark.parametrize(
    ("url", "environment", "said"),
    [
        ("s3://?endpoint=http://127.0.0.1:1", KEYS, "names no bucket"),
        ("s3://b?endpiont=http://127.0.0.1:1", KEYS, "endpiont"),
        ("s3://b?endpoint=127.0.0.1:1", KEYS, "not a URL"),
        ("s3://b?endpoint=http://127.0.0.1:1", {}, "AWS_ACCESS_KEY_ID"),
    ],
)
def test_what_cannot_be_right_is_told_at_once(url: str, environment: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        S3Objects(url, environment)


def test_other_places_are_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="s3://bucket"):
        open_objects("ftp://somewhere")
