"""Keys of other programs: each has a remedy, and none is a key of ours."""

from mirror.service.config import ClusterSettings, Config, FlowSettings
from mirror.service.config.checks import keys

OURS = {str(field.alias) for model in (Config, ClusterSettings, FlowSettings) for field in model.model_fields.values()}


def test_no_key_of_ours_is_another_programs() -> None:
    assert [key for key in OURS if keys.known_elsewhere(key)] == []


def test_a_remedy_names_keys_that_there_are() -> None:
    """A remedy that begins with "write" and the name of a setting."""
    for table in (keys.JAVA, keys._CLIENTS, keys._MIRROR_MAKER):
        for key, remedy in table.items():
            word = remedy.split()[1].rstrip(":,;")
            if remedy.startswith("write ") and "." in word:
                assert word in OURS, key


def test_whose_setting_it_is() -> None:
    told = {
        key: (keys.known_elsewhere(key) or ("", ""))[0] for key in ("ssl.protocol", "acks", "tasks.max", "producer.x")
    }
    assert told == {
        "ssl.protocol": "is a setting of Java clients",
        "acks": "is a setting of Kafka clients",
        "tasks.max": "is a setting of MirrorMaker",
        "producer.x": "is a setting of Connect",
    }
    assert keys.known_elsewhere("zzz") is None
