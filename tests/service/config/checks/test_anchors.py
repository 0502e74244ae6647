"""Values that YAML takes for anchors and aliases: each is named, and nothing of it is repeated."""

import pytest

from mirror.service.config.checks.anchors import Place, undefined_aliases, unused_anchors
from tests.service.config.loading import AT_CLUSTER, AT_FLOW, CLUSTER, FLOW, Load, base

SECRET = "hunter2"
SASL = "security.protocol: SASL_SSL\n    sasl.mechanism: PLAIN\n    sasl.username: me\n    sasl.password: "
AT_PASSWORD = f"{CLUSTER + 3}: {AT_CLUSTER}sasl.password: "
ANCHOR, ALIAS = "begins with &, so that YAML takes", "is an undefined alias: YAML takes"


@pytest.mark.parametrize(
    "written", [f"&{SECRET}", f"&{SECRET} x", f"&x {SECRET}", f"&{SECRET} # of the user", f"&{SECRET}*a"]
)
def test_a_password_that_begins_like_an_anchor(loading: Load, written: str) -> None:
    """Before, what follows the first word was taken for the password, or nothing at all."""
    (error,) = loading.errors(base(cluster=SASL + written))
    assert error.startswith(f"{AT_PASSWORD}{ANCHOR}")
    assert error.endswith("; put the value in quotes, or remove the anchor")
    assert SECRET not in error


@pytest.mark.parametrize("written", [f"*{SECRET}", f"*{SECRET} x", f"*{SECRET},x"])
def test_a_password_that_begins_like_an_alias(loading: Load, written: str) -> None:
    (error,) = loading.errors(base(cluster=SASL + written))
    assert error.startswith(f"{AT_PASSWORD}{ALIAS}")
    assert error.endswith("; put the value in quotes")
    assert SECRET not in error


@pytest.mark.parametrize("written", [f"'&{SECRET}'", f'"*{SECRET}"'])
def test_quotes_help(loading: Load, written: str) -> None:
    config = loading(base(cluster=SASL + written))
    assert config.enabled_flow().source.sasl_password.value == written[1:-1]


def test_each_of_them_with_its_key(loading: Load) -> None:
    """Wherever it stands, and all at once."""
    found = loading.errors(
        base(cluster="client.id: *a", flow="exclude: [x, *b]\n    topics.map:\n      y: *c", top="group.id: *d")
    )
    assert [error.partition(": is an")[0] for error in found] == [
        f"{CLUSTER}: {AT_CLUSTER}client.id",
        f"{FLOW}: {AT_FLOW}exclude[1]",
        f"{FLOW + 2}: {AT_FLOW}topics.map.y",
        f"{FLOW + 3}: group.id",
    ]
    found = loading.errors(base(cluster="client.id: &a", flow="exclude:\n    - x\n    - &b"))
    assert [error.partition(": begins")[0] for error in found] == [
        f"{CLUSTER}: {AT_CLUSTER}client.id",
        f"{FLOW + 2}: {AT_FLOW}exclude[1]",
    ]


def test_anchors_that_are_used(loading: Load) -> None:
    """Of a value, also of a secret; and those that nothing uses, of a list, and before a value that is no secret."""
    cluster = SASL + '&pw "of all"\n    client.id: &name mine\n    client.rack: &rack a'
    text = base(cluster=cluster, flow="exclude: &these [x]", top="group.id: *name")
    secured = "{security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: me, sasl.password: *pw, bootstrap"
    config = loading(text.replace("destination: {bootstrap", f"destination: {secured}"))
    flow = config.enabled_flow()
    assert (flow.source.client_id, flow.source.client_rack, config.group_id) == ("mine", "a", "mine")
    assert flow.source.sasl_password.value == flow.destination.sasl_password.value == "of all"


@pytest.mark.parametrize(
    ("text", "undefined", "unused"),
    [
        ("a: &x 1\nb: *x\n", [], []),
        ("b: *x\na: &x 1\n", [(1, ("b",))], [(2, ("a",))]),
        ("a: &x 1\nb: &x 2\nc: *x\n", [], [(1, ("a",))]),
        ("a: &x 1\nb: &x 2\n", [], [(1, ("a",)), (2, ("b",))]),
        ("a: &x 1\nb: &x [2]\nc: *x\n", [], [(1, ("a",))]),
        ("- - &x 1\n  - {b: *y, c: 0}\n- *z\n", [(2, (0, 1, "b")), (3, (1,))], [(1, (0, 0))]),
        ("? [1]\n: *y\n", [(2, ("[...]",))], []),
        ("? &x k\n: 1\n*y : 2\n", [(3, ("[...]",))], [(1, ("k",))]),
        ("a: {<<: *y, b: 1}\n", [(1, ("a", "<<"))], []),
        ("a: *y\nb: [\n", [(1, ("a",))], []),
        ("*y\n", [(1, ())], []),
        ("", [], []),
    ],
)  # fmt: skip
def test_where_they_are(text: str, undefined: list[object], unused: list[object]) -> None:
    assert undefined_aliases(text) == [Place(*each) for each in undefined]  # type: ignore[misc]
    assert unused_anchors(text) == [Place(*each) for each in unused]  # type: ignore[misc]
