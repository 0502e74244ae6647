"""The files that are shipped, and the JSON Schema: true of the models, and complete."""

import re
from pathlib import Path

from pydantic import BaseModel
from ruamel.yaml import YAML

from mirror.service.config import ClusterSettings, Config, FlowSettings, json_schema, load

ROOT = Path(__file__).parents[3]


def keys_of(model: type[BaseModel]) -> set[str]:
    return {str(field.alias) for field in model.model_fields.values()}


def test_reference_lists_every_key_with_its_default() -> None:
    """1. It loads. 2. It names every key of every model. 3. Its values are the defaults."""
    path = ROOT / "mirror" / "configs" / "reference.yaml"
    config = load(path, {})
    data = YAML(typ="safe").load(path.read_text())
    assert data.keys() == keys_of(Config)
    assert data["clusters"]["source"].keys() == keys_of(ClusterSettings)
    assert data["flows"]["source->destination"].keys() == keys_of(FlowSettings)
    assert config == load(ROOT / "mirror" / "configs" / "example.yaml", {})


def test_reference_comments_every_key() -> None:
    lines = (ROOT / "mirror" / "configs" / "reference.yaml").read_text().splitlines()
    keys = {key for model in (Config, ClusterSettings, FlowSettings) for key in keys_of(model)}
    first: dict[str, int] = {}
    for at, line in enumerate(lines):
        key = line.strip().partition(":")[0]
        if key in keys:
            first.setdefault(key, at)
    assert first.keys() == keys
    assert [key for key, at in first.items() if not lines[at - 1].strip().startswith("#")] == []


def test_example_says_what_has_to_be_said_alone() -> None:
    data = YAML(typ="safe").load((ROOT / "mirror" / "configs" / "example.yaml").read_text())
    assert data.keys() == {"clusters", "flows"}
    assert [cluster.keys() for cluster in data["clusters"].values()] == [{"bootstrap.servers"}] * 2
    assert [flow.keys() for flow in data["flows"].values()] == [{"topics"}]


def test_json_schema() -> None:
    schema = json_schema()
    definitions = schema["$defs"]
    assert schema["properties"].keys() == keys_of(Config)
    assert definitions["ClusterSettings"]["properties"].keys() == keys_of(ClusterSettings)
    assert definitions["FlowSettings"]["properties"].keys() == keys_of(FlowSettings)
    for part in (schema, *definitions.values()):
        assert part["additionalProperties"] is False
        assert all(each["description"] for each in part["properties"].values())
    flow = definitions["FlowSettings"]
    assert flow["required"] == ["topics"]
    assert flow["properties"]["topics"]["minItems"] == 1
    assert flow["properties"]["settle.ms"]["default"] == 1_000
    assert flow["properties"]["settle.ms"]["anyOf"][0] == {"type": "integer", "minimum": 1_000, "maximum": 86_400_000}
    assert "default" not in flow["properties"]["fetch.raw.bytes"]
    size = re.compile(flow["properties"]["fetch.max.bytes"]["anyOf"][1]["pattern"])
    assert size.search("4MiB")
    assert not size.search("4MB")
