"""What is read before a key is judged: files that are none, YAML's own features, and values that are looked up."""

import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.service.config import ClusterSettings, Config, ConfigError, FlowSettings, load
from tests.service.config.loading import AT_CLUSTER, AT_FLOW, CLUSTER, Load, base

# Values that are looked up.


def test_looked_up_values(loading: Load) -> None:
    (loading.path.parent / "id").write_text("from-file\r\n")
    env = {"HOST": "h", "PORT": "7", "MS": "2000", "ON": "true", "TOPIC": "t.*"}
    config = loading(
        base(
            cluster="client.id: ${file:id}-$${x}-$5",
            flow="settle.ms: ${env:MS}\n    enabled: ${env:ON}\n    exclude: ['${env:TOPIC}']",
        ).replace("s:1", "${env:HOST}-1:${env:PORT},${env:HOST}-2:${env:PORT}"),
        env,
    )
    flow = config.enabled_flow()
    assert ",".join(map(str, flow.source.bootstrap_servers)) == "h-1:7,h-2:7"
    assert flow.source.client_id == "from-file-${x}-$5"
    assert (flow.settings.settle_ms, flow.settings.enabled) == (2_000, True)
    assert flow.settings.exclude == ("t.*",)


def test_environment_of_the_process_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "MIRROR_TEST_CLIENT", "me")
    path = tmp_path / "mirror.yaml"
    path.write_text(base(cluster="client.id: ${env:MIRROR_TEST_CLIENT}"))
    assert load(str(path)).clusters["source"].client_id == "me"


def test_looked_up_values_are_never_shown(loading: Load) -> None:
    """Neither in an error nor in `repr`: the operator may have named the wrong file, and that one holds a password."""
    (loading.path.parent / "secret").write_text("hunter2[\n")
    config = loading(base(cluster="client.id: ${file:secret}", flow="exclude: ['${env:X}']"), {"X": "hunter2"})
    assert config.clusters["source"].client_id == "hunter2["
    assert "hunter2" not in f"{config!r} {config!s}"
    assert "client_id='***'" in repr(config.clusters["source"])
    assert "exclude='***'" in repr(config.enabled_flow())
    wrong = base(
        cluster="request.timeout.ms: ${file:secret}\n    security.protocol: ${file:secret}",
        flow="exclude: ['${file:secret}']\n    enabled: ${file:secret}\n    fetch.max.bytes: ${file:secret}",
    ).replace("s:1", "${file:secret}")
    errors = loading.errors(wrong)
    assert len(errors) == 6
    assert "hunter2" not in "".join(errors)
    assert all("${file:secret}" in error for error in errors)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${env:NOPE}", "environment variable NOPE is not set; set it, or write the value itself"),
        ("${file:nope}", "there is no file "),
        ("${file:.}", "there is no file "),
        ("${file:big}", "is larger than 65536 bytes; name a readable text file"),
        ("${file:binary}", "is not UTF-8 text; name a readable text file"),
        ("${env:}", "cannot look up ${env:}; write ${env:NAME} or ${file:PATH}, or write $${ for a literal ${"),
        ("${env}", "cannot look up ${env}; write"),
        ("${vault:x}", "cannot look up ${vault:x}; write"),
        ("a${2}", "cannot look up ${2}; write"),
        ("${env:NOPE", "holds ${ without a closing }; close it, or write $${ for a literal ${"),
    ],
)
def test_what_cannot_be_looked_up(loading: Load, value: str, expected: str) -> None:
    (loading.path.parent / "big").write_bytes(b"x" * 65_537)
    (loading.path.parent / "binary").write_bytes(b"\xff\xfe")
    (error,) = loading.errors(base(cluster=f'client.id: "{value}"'))
    assert error.startswith(f"{CLUSTER}: {AT_CLUSTER}client.id: ")
    assert expected in error


def test_a_file_that_may_not_be_read(loading: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, who may read anything: so the refusal is played."""
    secret = loading.path.parent / "secret"
    secret.write_text("x")
    loading.path.write_text(base(cluster="client.id: ${file:secret}"))
    refuse_to_open(monkeypatch, secret)
    with pytest.raises(
        ConfigError, match=r":4: clusters\.source\.client\.id: .*secret cannot be read: Permission denied; "
    ):
        load(loading.path, {})


def refuse_to_open(monkeypatch: pytest.MonkeyPatch, refused: Path) -> None:
    real: Callable[..., object] = open

    def guarded(path: Path, mode: str) -> object:
        if Path(path) == refused:
            raise PermissionError(13, "Permission denied")
        return real(path, mode)

    monkeypatch.setattr("mirror.service.config.document.open", guarded, raising=False)


# Files that hold no configuration at all.


def test_a_missing_file_has_no_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "nope.yaml", {})
    message = str(caught.value)
    assert (
        message
        == f"{tmp_path}/nope.yaml: the file cannot be read: No such file or directory; name a readable YAML file"
    )


@pytest.mark.parametrize(
    ("path", "reason"), [(".", "Is a directory"), ("a\0b", "embedded null byte"), ("nope/x.yaml", "No such file")]
)
def test_no_file_at_all(path: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"the file cannot be read: {reason}"):
        load(path, {})


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("", 1, "is empty"),
        ("# nothing\n---\n", 1, "is empty"),
        ("a: [1, 2\n", 2, "is not valid YAML: expected ',' or ']'"),
        ("a: b\n c: d: e\n", 2, "is not valid YAML: "),
        ("a: 1\n---\nb: 2\n", 2, "is not valid YAML: but found another document"),
        ("a: 1\nb: \x00\n", 2, "is not valid YAML: special characters are not allowed"),
        ('a: 1\nb: "x\n', 2, "is not valid YAML: found unexpected end of stream; close the quote that opens in this"),
        (b"a: 1\nb: \xff\n", 2, "is not UTF-8 text"),
        ("a: &a [*a]\n", 1, "is nested too deeply"),
        ("a: &a {<<: *a}\n", 1, "is nested too deeply"),
        ("a: " + "[" * 2_000, 1, "is nested too deeply"),
        ("a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [{f'*a{n}, ' * 9}]\n" for n in range(9)), 1, "holds too many"),
    ],
)
def test_not_yaml(loading: Load, text: str | bytes, line: int, problem: str) -> None:
    (error,) = loading.errors(text)
    assert error.startswith(f"{line}: the file {problem}"), error


def test_a_file_too_large_to_be_one(loading: Load) -> None:
    with pytest.raises(ConfigError, match=r"mirror\.yaml: the file is larger than 1048576 bytes; name a"):
        loading("#" * (2**20 + 1))


@pytest.mark.parametrize("text", ["[a]", "just text", "12"])
def test_no_mapping_at_the_top(loading: Load, text: str) -> None:
    loading.path.write_text(text)
    with pytest.raises(
        ConfigError, match=r"mirror\.yaml:1: must be a mapping of keys and values, not .*; write its keys"
    ):
        load(loading.path, {})


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(loading: Load) -> None:
    assert loading(b"\xef\xbb\xbf" + base().replace("\n", "\r\n").encode()) == loading(base())


# YAML's own ways to share text.


def test_aliases_and_merged_mappings(loading: Load) -> None:
    text = base(
        flow="<<: [*fast, *slow]\n    settle.ms: 3000",
        top='  "destination->source": {topics: *topics, enabled: false, <<: *fast}',
    ).replace("topics: [orders]", "topics: &topics [orders]")
    shared = "destination: {bootstrap.servers: 'd:2', client.id: &name x}\n"
    text = text.replace('destination: {bootstrap.servers: "d:2"}\n', shared)
    anchors = (
        '  "d->e": &fast {topics: [a], fetch.max.wait.ms: 7, settle.ms: 2000}\n  "e->f": &slow {fetch.max.wait.ms: 9}\n'
    )
    text = text.replace("flows:\n", "flows:\n" + anchors)
    errors = loading.errors(text)
    assert {error.split(": ")[1] for error in errors} == {
        "flows.d->e",
        "flows.e->f",
        "flows.e->f.topics",
    }


def test_merged_values_and_their_precedence(loading: Load) -> None:
    """What stands in the mapping itself wins, then what was merged first; errors name the line of the value."""
    anchor = "source: &all {bootstrap.servers: 's:1', client.id: a, request.timeout.ms: %s}"
    text = "clusters:\n  " + anchor + "\n  destination: {<<: *all, bootstrap.servers: 'd:2', client.id: b}\n"
    text += 'flows:\n  "source->destination": {topics: [x]}\n'
    config = loading(text % 5_000)
    assert config.clusters["destination"].client_id == "b"
    assert config.clusters["destination"].request_timeout_ms == 5_000
    errors = loading.errors(text % 5)
    assert [error.partition(": must")[0] for error in errors] == [
        "2: clusters.source.request.timeout.ms",
        "2: clusters.destination.request.timeout.ms",
    ]


def test_merging_something_else(loading: Load) -> None:
    (error,) = loading.errors(base(flow="<<: [1]"))
    assert error == "9: flows.source->destination: << takes an alias of a mapping; write <<: *name"


def test_keys_that_are_no_text(loading: Load) -> None:
    errors = loading.errors(base(top="1: a\n? [x]\n: b\n~: c"))
    assert errors == [
        "10: 1: is a key that is not text; put it in quotes",
        "11: [...]: is a key that is not text; put it in quotes",
        "13: ~: is a key that is not text; put it in quotes",
    ]


def test_messages_stay_on_their_line(loading: Load) -> None:
    """Control characters are escaped, long values and keys cut: a message is one line that prints."""
    (error,) = loading.errors(base(flow=r'offsets: "a\nb\e[31m' + "x" * 100 + '"'))
    assert error.startswith(rf"9: {AT_FLOW}offsets: must be exact or mapped, not 'a\nb\x1b[31mxxx")
    assert "xxx...'; write exact" in error
    (error,) = loading.errors(base(top=r'"k\r' + "y" * 200 + '": 1'))
    assert error.startswith(r"10: k\ryyy")
    assert "yyy...: is unknown; remove it" in error


def test_a_list_at_the_top(loading: Load) -> None:
    loading.path.write_text("- ${env:X}\n- a\n")
    assert [message.split(": ")[0] for message in messages_of(loading.path)] == [f"{loading.path}:1"]
    with pytest.raises(ConfigError, match=r"mirror\.yaml:1: \[0\]: environment variable X is not set; set it"):
        load(loading.path, {})


def test_half_characters(loading: Load) -> None:
    """In keys, in values, and in an environment that is not UTF-8: nothing that could be sent or printed."""
    assert loading.errors(base(top=r'"\ud800": 1')) == [r"10: \ud800: is a key that is not text; put it in quotes"]
    expected = f"{CLUSTER}: {AT_CLUSTER}client.id: holds half a character; write it as plain UTF-8 text"
    assert loading.errors(base(cluster=r'client.id: "\ud800"')) == [expected]
    assert loading.errors(base(cluster="client.id: ${env:X}"), {"X": b"\xff".decode(errors="surrogateescape")}) == [
        expected
    ]


# Whatever stands in a file: a configuration or a ConfigError, and nothing else.

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("${env:X}") | st.just("a")
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner), max_leaves=5
)


def section(
    model: type[Config | ClusterSettings | FlowSettings], known: st.SearchStrategy[object]
) -> st.SearchStrategy[object]:
    """Mappings with keys of a model and any values, or values of the right kind."""
    keys = [str(field.alias) for field in model.model_fields.values()]
    return values | st.dictionaries(st.sampled_from(keys) | st.text(max_size=5), values | known, max_size=6)


names = st.sampled_from(["a", "b", "a->b", "b->a", "a->c"]) | st.text(max_size=5)
documents = st.fixed_dictionaries(
    {
        "clusters": values | st.dictionaries(names, section(ClusterSettings, st.just("h:1")), max_size=3),
        "flows": values | st.dictionaries(names, section(FlowSettings, st.just(["t"]) | st.just(7)), max_size=3),
    },
    optional={"log.level": values, "drain.timeout.ms": values},
)


@given(documents.map(json.dumps) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace").decode()))
def test_any_file_is_a_configuration_or_an_error(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mirror.yaml")
        path.write_text(text, encoding="utf-8")
        for message in messages_of(path):
            assert re.match(rf"{re.escape(str(path))}:\d+: ", message)
            assert message.isprintable()


def messages_of(path: Path) -> list[str]:
    try:
        load(path, {"X": "x"}).enabled_flow()
    except ConfigError as error:
        return [str(finding) for finding in error.findings]
    return []
