"""``mirror config import`` as a whole: samples, golden outputs, every key accounted for, no secret anywhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mirror.service.config import ConfigError
from mirror.service.importing.command import read
from mirror.service.importing.make.assemble import assemble
from mirror.service.importing.model import Fate, Inputs
from mirror.service.importing.read import dedicated
from mirror.service.importing.read import strimzi as resource
from mirror.service.importing.read.properties import read as read_properties
from mirror.service.importing.settings.flows import FLOWS
from mirror.service.importing.settings.lookup import CLIENT_KEYS
from mirror.service.importing.settings.workers import WORKERS
from tests.service.importing.importing import SAMPLES, TWO, imported, loaded

FILES = sorted(path.name for path in SAMPLES.iterdir() if not path.name.endswith(".expected"))
SECRET = "hunter2"


def inputs_of(path: Path) -> Inputs:
    found = resource.read(str(path)) if path.suffix == ".yaml" else dedicated.read(str(path), path.read_bytes())
    assemble(found)
    return found


def test_there_are_samples() -> None:
    assert len(FILES) >= 8


@pytest.mark.parametrize("name", FILES)
def test_every_sample_can_be_loaded(name: str, tmp_path: Path) -> None:
    """A sample whose name says so has no flow that may run before something is decided."""
    found = read(str(SAMPLES / name))
    if "undecided" in name:
        with pytest.raises(ConfigError, match="no flow is enabled") as caught:
            loaded(tmp_path, found.text)
        assert len(caught.value.findings) == 1
        assert any("no flow is enabled" in each for each in found.decisions)
    else:
        assert loaded(tmp_path, found.text).enabled_flows()
        assert not any("refused" in each for each in found.decisions)


@pytest.mark.parametrize("name", FILES)
def test_every_key_has_one_fate_and_is_named(name: str) -> None:
    ledger = inputs_of(SAMPLES / name).ledger
    fates = [account.given for fate in Fate for account in ledger.accounts(fate)]
    assert sorted(fates, key=hash) == sorted(ledger, key=hash)
    text = read(str(SAMPLES / name)).text
    assert [given.place for given in ledger if given.place not in text] == []
    assert all(account.why for fate in (Fate.NOT_NEEDED, Fate.DECIDE) for account in ledger.accounts(fate))


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".properties")])
def test_every_property_is_a_key(name: str) -> None:
    path = SAMPLES / name
    there = {(each.key, each.line) for each in read_properties(name, path.read_bytes())}
    assert {(given.name, given.line) for given in inputs_of(path).ledger} == there


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".yaml")])
def test_every_line_of_a_resource_belongs_to_a_key(name: str) -> None:
    """Lines that only open a part, or are a part of what a key has, begin with it."""
    path = SAMPLES / name
    keys = {given.line for given in inputs_of(path).ledger}
    sections = re.compile(r"\s*-?\s*(spec|clusters|mirrors|config|tls|authentication|source|target|\w+Connector):\s*$")
    parts = re.compile(r"\s*(- \{|name:|annotations:|valueFrom|env:)")
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#") and not sections.match(line) and not parts.match(line):
            assert number in keys, (number, line)


@pytest.mark.parametrize("name", FILES)
def test_no_secret_is_printed(name: str) -> None:
    found = read(str(SAMPLES / name))
    assert SECRET not in found.text
    assert SECRET not in "\n".join(found.decisions)


@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.glob("*.expected")))
def test_golden(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a change is meant: ``mirror config import FILE > FILE.expected`` in the folder of the samples."""
    monkeypatch.chdir(SAMPLES)
    assert read(name.removesuffix(".expected")).text == Path(name).read_text()


SECRETS = [
    "ssl.key.password", "ssl.keystore.password", "ssl.keystore.key", "ssl.truststore.password",
    "ssl.keystore.certificate.chain", "ssl.truststore.certificates", "config.providers.vault.param.token", "an.own.key",
    "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.assertion.private.key.passphrase",
    "transforms.x.password", "interceptor.classes", "sync.group.offsets.interval.seconds", "sync.topic.acls.enabled",
    "replication.policy.class", "security.protocol", "sasl.mechanism", "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm", "isolation.level", "auto.offset.reset", "request.timeout.ms",
    "sasl.kerberos.kinit.cmd", "offset.storage.topic", "listeners",
]  # fmt: skip
"""Keys whose values are never shown, or only if they are one of a few words, or a number."""
VALUES = [SECRET, f"${{vault:{SECRET}", f"\\ud83d{SECRET}\\n"]
JAAS = [
    SECRET,
    f'x.PlainLoginModule required username="u" password="{SECRET}";',
    f'x.ScramLoginModule required password="{SECRET}"',
    f'x.OAuthBearerLoginModule required clientId="c" clientSecret="{SECRET}" scope="s";',
    f'x.ScramLoginModule required username="u" password="{SECRET}" tokenauth="true";',
    f'x.Krb5LoginModule required password="{SECRET}" "',
]
PLACES = ["", "a.", "b.producer.", "a->b.", "a->b.source.consumer."]
MECHANISMS = ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"]


@pytest.mark.parametrize(
    ("key", "value", "mechanism"),
    [
        *((key, value, "OAUTHBEARER" if "oauth" in key else "SCRAM-SHA-256") for key in SECRETS for value in VALUES),
        *(("sasl.jaas.config", value, mechanism) for value in JAAS for mechanism in MECHANISMS),
    ],
)
def test_a_secret_in_every_place(key: str, value: str, mechanism: str, tmp_path: Path) -> None:
    """Also in places where none belongs. Only what is taken over as it is may be printed."""
    for place in PLACES:
        secured = f"security.protocol = SASL_SSL\nsasl.mechanism = {mechanism}\nssl.keystore.type = PEM\n"
        found = imported(tmp_path, f"{TWO}{secured}{place}{key} = {value}\n")
        assert SECRET not in found.text + found.summary + "".join(found.decisions), place


@pytest.mark.parametrize(
    "line",
    [
        SECRET,
        f"{SECRET};",
        f'"{SECRET}";',
        f"password {SECRET}",
        f"{SECRET}==",
        f"eyJhb.{SECRET}.x =",
        f"  {SECRET} \\\n x",
    ],
)
def test_a_secret_in_a_line_of_its_own(line: str, tmp_path: Path) -> None:
    assert SECRET not in imported(tmp_path, f"{TWO}{line}\n").text


def test_detected_by_content(tmp_path: Path) -> None:
    yaml = (SAMPLES / "strimzi.yaml").read_text()
    assert "security.protocol: SASL_SSL" in imported(tmp_path, yaml, name="a.properties").text
    assert '"a->b":' in imported(tmp_path, TWO, name="a.yaml").text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is no configuration of MirrorMaker 2"),
        (b"hello\n", "the file is no configuration of MirrorMaker 2"),
        (b"bootstrap.servers=a:9092\n", "the file is no configuration of MirrorMaker 2"),
        (b"\xff\xfec\0l\0", "the file is no text"),
        (b'{"name": "x", "config": {"connector.class": "MirrorSourceConnector"}}', "a connector of Kafka Connect"),
        (b'{"a": 1}', ":1: the file is JSON;"),
        (b"{", "begins like it"),
        (b"[" * 100_000, "no configuration of MirrorMaker 2"),
        (b"{" * 100_000, "begins like it"),
        (b"apiVersion: v1\nkind: Secret\ndata: {password: hunter2}\n", ":2: kind: is a resource of another kind"),
        (b"apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaConnector\n", ":2: kind: is a resource of another kind"),
        (b"clusters = a\n", ":1: clusters: names no two clusters"),
        (b"a->b.enabled = true\n", "clusters: names no two clusters"),
        (b"clusters = a, b\na.bootstrap.servers=a:1\n", ":1: enables no flow"),
        (b"clusters = a, b\na->b.enabled = true\n", ":1: a: has no addresses of brokers"),
        (b"x" * (2**20 + 1), "is larger than"),
    ],
)
def test_what_cannot_be_imported(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(problem)) as caught:
        read(str(path))
    assert SECRET not in str(caught.value)


def test_a_format_that_is_said_is_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(TWO)
    with pytest.raises(ConfigError):
        read(str(path), form="strimzi")


def test_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    """Java reads ISO 8859-1: it is no error, and comes out as it went in."""
    path = tmp_path / "file"
    path.write_bytes(TWO.encode() + b"# caf\xe9\na.client.id = caf\xe9\n")
    assert loaded(tmp_path, read(str(path)).text).clusters["a"].client_id == "café"


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    found = imported(tmp_path, f"{TWO}a.client.id = \\u001b[31m\nsome.\\u001bkey = x\n")
    assert "\x1b" not in found.text + "".join(found.decisions)


def test_many_keys(tmp_path: Path) -> None:
    """Every key that there is, at every place, in one file."""
    keys = sorted({*CLIENT_KEYS, *FLOWS, *WORKERS} - {"clusters"})
    places = (
        "",
        "a.",
        "b.",
        "a.consumer.",
        "b.producer.",
        "b.admin.",
        "a->b.",
        "a->b.consumer.",
        "a->b.producer.override.",
    )
    text = TWO + "".join(f"{place}{key} = 1\n" for place in places for key in keys)
    found = imported(
        tmp_path, text.replace("a->b.enabled = 1\n", "").replace("bootstrap.servers = 1\n", "bootstrap.servers = c:1\n")
    )
    assert len(found.text.splitlines()) > 1_000


def test_the_command(tmp_path: Path) -> None:
    """Our configuration on stdout, the summary on stderr, and exit code 78 for what is none."""
    path = tmp_path / "mm2.properties"
    path.write_text(f"{TWO}tasks.max = 3\na.consumer.auto.offset.reset = latest\n")
    command = [sys.executable, "-m", "mirror", "config", "import"]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == read(str(path)).text
    assert f"{path}: 4 taken over, 1 not needed, 2 need a decision\n" in done.stderr
    assert "  a.consumer.auto.offset.reset, line 6: a copy begins where the source's log begins" in done.stderr
    wrong = tmp_path / "wrong"
    wrong.write_text("hello")
    done = subprocess.run([*command, str(wrong)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith(f"{wrong}:1: the file is no configuration of MirrorMaker 2; give an mm2.properties")
