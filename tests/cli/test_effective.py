"""The configuration in effect, as it is shown."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mirror.cli import main
from mirror.cli.effective import as_yaml, in_effect
from tests.service.config.loading import Load, base

SASL = "security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: ann, sasl.password: "


@pytest.fixture
def loading(tmp_path: Path) -> Load:
    return Load(tmp_path)


def test_what_is_shown_is_the_same_configuration(loading: Load) -> None:
    """Sizes in units, lists and mappings included; the keys that the file lacks have their defaults."""
    found = loading(
        base(
            flow="fetch.max.bytes: 3MiB\n    exclude: ['a.*']\n    topic.max.bytes.per.second: {'b.*': 1MiB}",
            top="workers: 2",
        )
    )
    again = loading(as_yaml(found))
    assert in_effect(again) == in_effect(found)
    shown = in_effect(found)["flows"]["source->destination"]
    assert (shown["fetch.max.bytes"], shown["linger.ms"], shown["exclude"]) == ("3MiB", 20, ["a.*"])
    assert (shown["flow.id"], shown["group.id"]) == ("source->destination", "mirror-source->destination")
    for model, data in ((found, in_effect(found)), (found.clusters["source"], in_effect(found)["clusters"]["source"])):
        assert set(data) == {str(field.alias) for field in type(model).model_fields.values()}


def test_defaults_are_marked(loading: Load) -> None:
    found = loading(base(flow="linger.ms: 7"))
    lines = [line.strip() for line in as_yaml(found).splitlines()]
    assert "linger.ms: 7" in lines
    assert any(line.startswith("settle.ms: ") and line.endswith("# default") for line in lines)
    assert in_effect(found, given=True) == {
        "clusters": {"source": {"bootstrap.servers": "s:1"}, "destination": {"bootstrap.servers": "d:2"}},
        "flows": {"source->destination": {"topics": ["orders"], "linger.ms": 7}},
    }


@pytest.mark.parametrize("key", ["flow.id", "group.id", "topics"])
def test_what_was_looked_up_is_hidden(loading: Load, key: str) -> None:
    """Also where another setting is made of it, or it is a part of a list."""
    text = base(
        flow=f"{key}: '${{env:X}}'" if key != "topics" else "", top="group.id: '${env:X}'" if key == "group.id" else ""
    )
    found = loading(text.replace("[orders]", "['${env:X}', orders]") if key == "topics" else text, {"X": "hunter2"})
    assert "hunter2" not in as_yaml(found)
    assert "hunter2" not in json.dumps(in_effect(found, given=True))
    assert in_effect(found)["flows"]["source->destination"][key] == "***"


@pytest.mark.parametrize(
    "text",
    [
        base(flow="offsets: mapped\n    topic.rename: {orders: 'v-${env:X}'}"),
        base(cluster="sasl.oauthbearer.extensions: {cluster: '${env:X}'}").replace(
            '"s:1"',
            '"s:1"\n    security.protocol: SASL_SSL\n    sasl.mechanism: OAUTHBEARER\n    sasl.oauthbearer.token: t',
        ),
        base(cluster="sasl.oauthbearer.token.endpoint.url: 'https://ann:hunter2@tokens/t'").replace(
            '"s:1"',
            '"s:1"\n    security.protocol: SASL_SSL\n    sasl.mechanism: OAUTHBEARER\n    sasl.oauthbearer.client.id: i'
            "\n    sasl.oauthbearer.client.secret: s",
        ),
    ],
    ids=["a rename", "an extension", "a URL"],
)
def test_parts_are_hidden(loading: Load, text: str) -> None:
    """What was looked up inside a mapping, and a password in a URL."""
    found = loading(text, {"X": "hunter2"})
    assert "hunter2" not in as_yaml(found)
    assert "hunter2" not in json.dumps(in_effect(found, given=True))
    assert "***" in as_yaml(found, given=True)
    if "${env" in text:
        assert "hunter2" not in repr(found)


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize("password", ["hunter2", "${file:secret}", "${env:SECRET}"])
def test_the_command(tmp_path: Path, form: str, password: str) -> None:
    """No secret is printed, wherever it comes from."""
    (tmp_path / "secret").write_text("hunter2")
    path = tmp_path / "mirror.yaml"
    path.write_text(base().replace("{bootstrap", f"{{{SASL}'{password}', bootstrap"))
    ran = CliRunner(env={"SECRET": "hunter2"}).invoke(main, ["config", "show", "-c", str(path), "--format", form])
    assert ran.exit_code == 0, ran.output
    assert "hunter2" not in ran.output
    assert "sasl.password" in ran.output
    assert "***" in ran.output
    assert "ann" in ran.output


def test_the_schema() -> None:
    """Every key is in it."""
    ran = CliRunner().invoke(main, ["config", "schema"])
    assert ran.exit_code == 0
    assert {"clusters", "flows", "http.listen"} <= set(json.loads(ran.output)["properties"])
