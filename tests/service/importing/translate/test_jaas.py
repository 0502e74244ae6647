"""``sasl.jaas.config``, parsed."""

import pytest

from mirror.service.importing.translate.jaas import parse


@pytest.mark.parametrize(
    ("text", "module", "options"),
    [
        (
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";',
            "PlainLoginModule",
            {"username": "u", "password": "p"},
        ),
        ("a.B required username='u v' password='p\"q'", "B", {"username": "u v", "password": 'p"q'}),
        (r'a.B required  username = "u"   password="p\"\\;=" ;  ', "B", {"username": "u", "password": r'p"\;='}),
        ("a.Krb5 REQUIRED useKeyTab=true keyTab=/etc/k;", "Krb5", {"useKeyTab": "true", "keyTab": "/etc/k"}),
        ("software.amazon.msk.auth.iam.IAMLoginModule required;", "IAMLoginModule", {}),
        ('B required username="${env:U}";', "B", {"username": "${env:U}"}),
    ],
)  # fmt: skip
def test_what_is_one_module(text: str, module: str, options: dict[str, str]) -> None:
    found = parse(text)
    assert found is not None
    assert (found.module, found.options) == (module, options)


@pytest.mark.parametrize(
    "text",
    ["", "hunter2", "B", "B often a=b;", 'B required username="u', "B required a=;", "B required a=b; C required c=d;",
     "B required = b;", "${file:/a:b}", 'B required "a"="b" c', "B required a b c"],
)  # fmt: skip
def test_what_is_not(text: str) -> None:
    assert parse(text) is None


def test_options_are_not_shown() -> None:
    assert "hunter2" not in repr(parse("B required password=hunter2;"))
