"""What is wrong with a message is said in words, not as a regular expression."""

from __future__ import annotations

import msgspec
import pytest

from drumlin.api.messages.people import FetchResult
from drumlin.api.plainly import plainly

URL = "http://a.example/"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("url", "foo", "Expected a web address such as https://example.com/page, in ASCII"),
        ("contentSha256", "abc", "Expected a SHA-256 in hexadecimal or base64 - at `$.contentSha256`"),
        ("bodyBase64", "!", "Expected base64 - at `$.bodyBase64`"),
        ("workerId", "a b", "Expected a name of up to 64 letters, digits"),
        ("statusCode", 1_000, "Expected `int` <= 999 - at `$.statusCode`"),
    ],
)
def test_a_form_that_is_not_kept_is_named_in_words(field: str, value: object, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as wrong:
        msgspec.convert({"url": URL, field: value}, FetchResult)
    assert plainly(wrong.value).startswith(said)
    assert "regex" not in plainly(wrong.value)
