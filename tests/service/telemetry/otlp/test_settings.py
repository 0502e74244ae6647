"""The notation of headers, as OpenTelemetry has it."""

import pytest

from mirror.service.telemetry.otlp.settings import headers_of


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        (" Api-Key = x=y== , b=1%2C2, ", {"api-key": "x=y==", "b": "1,2"}),
        ("authorization=Basic%20abc", {"authorization": "Basic abc"}),
        ("a=", {"a": ""}),
    ],
)
def test_headers(text: str, headers: dict[str, str]) -> None:
    assert headers_of(text) == headers


@pytest.mark.parametrize("text", ["s3cret", "a=b,s3cret", "a b=s3cret", "a=s3cret%0Ax: y", "=s3cret", "a=s3cret%C3%A4"])
def test_what_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not name=value") as error:
        headers_of(text)
    assert "s3cret" not in str(error.value)
