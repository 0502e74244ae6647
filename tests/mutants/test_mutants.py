"""How mutants are judged, on a project of a few lines. (Cosmic Ray itself is there for ``make mutants`` only.)"""

import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.mutants import reach as reaching
from tests.mutants.copies import Copies
from tests.mutants.known import Change, Equivalent, change, load, stale
from tests.mutants.project import ROOT, copy_to
from tests.mutants.reach import Reach, measured
from tests.mutants.rooms import PACKAGES, Room, digest, rooms_of
from tests.mutants.trial import Verdict, check, tried
from tests.mutants.trial import _run as run
from tests.mutants.unevaluated import is_in, unevaluated

CODE = "def least(one, two):\n    return one if one < two else two\n"
TESTS = """
from least import least

def test_first():
    assert least(1, 2) == 1

def test_second():
    assert least(2, 1) == 1
"""

ANNOTATED = """
class Thing:
    def __init__(self) -> None:
        self.a: str // None = 1
        b: (
            1 / 0
        ) = 2
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "least.py").write_text(CODE)
    (tmp_path / "test_least.py").write_text(TESTS)
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("<", ">", Verdict.KILLED),
        ("<", "<=", Verdict.SURVIVED),
        ("def least", "def most", Verdict.KILLED),
        ("return one", "return (one", Verdict.KILLED),
    ],
)
def test_a_mutant_is_killed_by_a_test_that_fails(project: Path, old: str, new: str, verdict: Verdict) -> None:
    """Or by an import that fails. The file is as it was afterwards."""
    tests = ["test_least.py::test_first", "test_least.py::test_second"]
    assert tried(project, "least.py", CODE.replace(old, new), tests, [0.1, 0.1]) is verdict
    assert (project / "least.py").read_text() == CODE


def test_only_the_tests_that_reach_it_count(project: Path) -> None:
    wrong = CODE.replace("else two", "else one")
    assert tried(project, "least.py", wrong, ["test_least.py::test_first"], [0.1]) is Verdict.SURVIVED
    assert tried(project, "least.py", wrong, ["test_least.py::test_second"], [0.1]) is Verdict.KILLED
    assert tried(project, "least.py", wrong, [], []) is Verdict.UNREACHED


def test_one_that_hangs_is_ended(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([0.5, 60.0])
    monkeypatch.setattr("tests.mutants.trial._run", lambda command, root, _: run(command, root, next(waits)))
    endless = CODE.replace("return", "while True: pass\n    return")
    assert tried(project, "least.py", endless, ["test_least.py::test_first"], [0.1]) is Verdict.HUNG
    assert (project / "least.py").read_text() == CODE


def test_a_test_that_hangs_fails_by_itself(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others may take long together: nobody waits for that."""
    monkeypatch.setattr("tests.mutants.trial._TIMES", 0.0)
    monkeypatch.setattr("tests.mutants.trial._LEAST_S", 0.5)
    monkeypatch.setattr("tests.mutants.trial._run", lambda command, root, _: run(command, root, 60.0))
    endless = CODE.replace("return", "while True: pass\n    return")
    assert tried(project, "least.py", endless, ["test_least.py::test_first"], [0.1]) is Verdict.KILLED


@pytest.mark.parametrize("code", [2, 3, 4, 5, -9, None])
def test_what_ails_the_machine_kills_no_mutant(
    project: Path, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    """A full disk, or a process that was ended for its memory. The same tests have to pass without the mutant."""
    monkeypatch.setattr("tests.mutants.trial._run", lambda *_: code)
    with pytest.raises(RuntimeError, match="without the mutant"):
        tried(project, "least.py", CODE.replace("<", ">"), ["test_least.py::test_first"], [0.1])
    assert (project / "least.py").read_text() == CODE


def test_what_ended_the_tests_is_the_mutant(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = iter([-9, 0])
    monkeypatch.setattr("tests.mutants.trial._run", lambda *_: next(codes))
    mutant = CODE.replace("<", ">")
    assert tried(project, "least.py", mutant, ["test_least.py::test_first"], [0.1]) is Verdict.KILLED


def test_a_copy_passes_without_a_mutant(project: Path) -> None:
    both = ["test_least.py::test_first", "test_least.py::test_second"]
    check(project, both, [0.1, 0.1])
    check(project, [], [])
    with pytest.raises(RuntimeError, match="exit code 4"):
        check(project, ["test_least.py::test_third"], [0.1])
    (project / "least.py").write_text(CODE.replace("<", ">"))
    with pytest.raises(RuntimeError, match="exit code 1"):
        check(project, both, [0.1, 0.1])


def test_each_copy_is_tried_without_a_mutant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the tests of its first mutant, before that; and at the end with those of its last one. What is known of the
    reach may be of another day."""
    ran: list[tuple[str, list[str], list[float]]] = []
    monkeypatch.setattr("tests.mutants.copies.check", lambda root, *of: ran.append((root.name, *of)))
    copies = Copies([tmp_path / "one", tmp_path / "two"])
    with copies.lent([], []):
        pass
    with copies.lent(["first"], [1.0]) as here, copies.lent(["second"], [2.0]) as other:
        assert [here.name, other.name] == ["two", "one"]
    assert ran == [("two", ["first"], [1.0]), ("one", ["second"], [2.0])]
    with copies.lent([], []), copies.lent(["third"], [3.0]) as here:
        assert here.name == "two"
    assert len(ran) == 2
    copies.check()
    assert ran[2:] == [("two", ["third"], [3.0]), ("one", ["second"], [2.0])]


def test_the_quickest_of_those_that_run_the_line_come_first() -> None:
    """Of a line that only an import runs, all of the file's. Those that take too long together do not judge."""
    reach = Reach(
        {"a.py": {2: ["slow", "quick"], 3: ["other", "long"], 4: ["long"]}, "b.py": {}},
        {"slow": 9.0, "quick": 0.1, "other": 1.0, "long": 80.0},
    )
    assert reach.tests_of("a.py", 2) == ["quick", "slow"]
    assert reach.tests_of("a.py", 1) == ["quick", "other", "slow"]
    assert reach.tests_of("b.py", 1) == reach.tests_of("c.py", 1) == []
    assert reach.tests_of("a.py", 3) == ["other", "long"]
    assert reach.tests_of("a.py", 4) == ["long"]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_judged_by_all_of_its_own_tests(package: str) -> None:
    """Each of them in one room; of the simulation's, those that are named, and they are there."""
    names = [name for room in rooms_of(ROOT, package) for name in room.names]
    folder = ROOT / "tests" / package.removeprefix("mirror/")
    own = [str(file.relative_to(ROOT)) for file in folder.glob("**/test_*.py")]
    assert own
    assert sorted(name for name in names if "::" not in name) == sorted(own)
    for path, _, test in (name.partition("::") for name in names if "::" in name):
        assert f"def {test}(" in (ROOT / path).read_text()


@pytest.fixture
def rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one package and two rooms."""
    monkeypatch.setitem(PACKAGES, "mirror/first", ("tests/first",))
    for path in ("mirror/first/code.py", "tests/help.py", "tests/first/test_a.py", "tests/first/inner/test_b.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ("mirror/first/code.py", ["tests-first", "tests-first-inner"]),
        ("tests/help.py", ["tests-first", "tests-first-inner"]),
        ("tests/first/test_a.py", ["tests-first"]),
        ("tests/first/inner/test_b.py", ["tests-first-inner"]),
        ("tests/first/inner/test_new.py", ["tests-first-inner"]),
        ("tests/other/test_c.py", []),
    ],
)
def test_only_what_changed_is_measured_again(
    rooms: Path, monkeypatch: pytest.MonkeyPatch, changed: str, again: list[str]
) -> None:
    """Everything, if it is the code or a helper. What is kept counts as much as what is measured."""
    ran: list[str] = []

    def run(root: Path, folder: Path, room: Room) -> dict[str, object]:
        ran.append(room.name)
        return {"tests": [room.name], "lines": {"mirror/first/code.py": {7: [0]}}, "seconds": {room.name: 1.0}}

    monkeypatch.setattr(reaching, "_run", run)
    measured(rooms, rooms, "mirror/first")
    assert sorted(ran) == ["tests-first", "tests-first-inner"]
    ran.clear()
    (rooms / changed).parent.mkdir(exist_ok=True)
    (rooms / changed).write_text("changed = True\n")
    reach = measured(rooms, rooms, "mirror/first")
    assert sorted(ran) == again
    assert reach.tests_of("mirror/first/code.py", 7) == ["tests-first", "tests-first-inner"]
    assert [reach.seconds_of(test) for test in ("tests-first", "tests-first-inner", "none")] == [1.0, 1.0, 0.0]


def test_a_room_that_judges_otherwise_is_another(rooms: Path) -> None:
    room = rooms_of(rooms, "mirror/first")[0]
    assert digest(rooms, room) != digest(rooms, room._replace(marks="long"))


def test_what_is_known_to_be_equivalent_has_a_reason(tmp_path: Path) -> None:
    made = change(CODE, CODE.replace("<", "<="))
    assert made == Change("return one if one < two else two", "return one if one <= two else two")
    listing = tmp_path / "list.toml"
    entry = f"[[mutant]]\npath = 'least.py'\nbefore = '{made.before}'\nafter = '{made.after}'\n"
    listing.write_text(f"{entry}why = 'equal ones are the same'\n")
    assert load(listing) == [Equivalent("least.py", made, "equal ones are the same")]
    listing.write_text(entry)
    with pytest.raises(ValueError, match="mutant 1 needs path, before, after and why"):
        load(listing)


def test_the_list_is_of_today_s_code(tmp_path: Path) -> None:
    assert stale(load(), ROOT) == []
    gone = Equivalent("mirror/records/scan.py", Change("no such line", ""), "it is not there")
    assert stale([gone, gone._replace(path="mirror/none.py")], ROOT) == [gone, gone._replace(path="mirror/none.py")]


def test_a_copy_is_complete(tmp_path: Path) -> None:
    copy = copy_to(tmp_path / "copy")
    assert (copy / "mirror" / "relay" / "relay.py").read_text() == (ROOT / "mirror" / "relay" / "relay.py").read_text()
    assert (copy / "tests" / "conftest.py").exists()


def test_a_copy_has_every_package(tmp_path: Path) -> None:
    """What tests import from here has to be there, or none of them passes there."""
    here = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    there = {path.parent.name for path in copy_to(tmp_path / "copy").glob("*/__init__.py")}
    assert there == here


def test_annotations_in_functions_are_not_evaluated() -> None:
    """Python itself agrees: each of these annotations is wrong."""
    namespace: dict[str, type] = {}
    exec(ANNOTATED, namespace)
    namespace["Thing"]()
    parts = unevaluated(ANNOTATED)
    assert len(parts) == 2
    assert is_in(parts, (4, 16))
    assert is_in(parts, (6, 14))
    assert not is_in(parts, (4, 30))
    for evaluated in (
        "class Thing:\n    a: str // None = 1\n",
        "def a(b: str // None) -> None: ...\n",
        "a: 1 / 0 = 1\n",
    ):
        assert unevaluated(evaluated) == []
        with pytest.raises((TypeError, ZeroDivisionError)):
            exec(evaluated)


def test_what_became_of_the_mutants_is_told_before_the_last_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That takes minutes, and may fail, because a test has become flaky or a disk full: the survivors of a session of
    hours are not lost with it."""

    def check() -> None:
        raise RuntimeError("they do not pass any more")

    session = SimpleNamespace(
        copies=SimpleNamespace(check=check), count=Counter(survived=1), survivors=["a.py:1\n    - x\n    + y"],
        play=lambda _: None,
    )  # fmt: skip
    nothing = SimpleNamespace(Mutation=None, changed=None, mutations_of=lambda *_: [])
    monkeypatch.setitem(sys.modules, "tests.mutants.mutations", nothing)
    monkeypatch.delitem(sys.modules, "tests.mutants.__main__", raising=False)
    mutants = import_module("tests.mutants.__main__")
    fakes = {"FOLDER": tmp_path, "load": list, "stale": lambda *_: [], "copy_to": lambda _: None}
    for name, value in {**fakes, "Session": lambda *_: session}.items():
        monkeypatch.setattr(mutants, name, value)
    with pytest.raises(RuntimeError, match="not pass any more"):
        mutants.main(["1", "7"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [
        "1 survived", "not seen: a.py:1", "    - x", "    + y",
        "last, whether the tests still pass in each copy without any mutant",
    ]  # fmt: skip
