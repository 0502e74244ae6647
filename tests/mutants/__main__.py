"""``python -m tests.mutants COUNT SEED [REGEX]``: so many mutants of the files whose path matches; see the package."""

import json
import random
import re
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.mutants.copies import Copies
from tests.mutants.known import Equivalent, change, load, stale
from tests.mutants.mutations import Mutation, changed, mutations_of
from tests.mutants.project import ROOT, WORKERS, copy_to
from tests.mutants.reach import Reach, measured
from tests.mutants.rooms import PACKAGES
from tests.mutants.trial import Verdict, tried

FOLDER = ROOT / "build" / "mutants"
MISSED = (Verdict.SURVIVED, Verdict.UNREACHED)


def package_of(path: str) -> str:
    """In which the file is."""
    return next(package for package in PACKAGES if path.startswith(f"{package}/"))


class Session:
    """Mutants, each tried in one of a few copies of the project. ``reach``: by package."""

    def __init__(self, reach: dict[str, Reach], equivalent: list[Equivalent]) -> None:
        self._reach = reach
        self._known = {(each.path, each.change): each.why for each in equivalent}
        self.copies = Copies([copy_to(FOLDER / f"copy-{number}") for number in range(WORKERS)])
        self.count: Counter[str] = Counter()
        self.survivors: list[str] = []

    def play(self, mutation: Mutation) -> None:
        """One mutant; tells what became of it, and writes it down."""
        before = (ROOT / mutation.path).read_text()
        after = changed(before, mutation)
        made = change(before, after)
        reach = self._reach[package_of(mutation.path)]
        tests = reach.tests_of(mutation.path, mutation.line)
        seconds = [reach.seconds_of(test) for test in tests]
        with self.copies.lent(tests, seconds) as copy:
            verdict = tried(copy, mutation.path, after, tests, seconds)
        told = verdict.value
        if verdict in MISSED:
            why = self._known.get((mutation.path, made))
            told = f"known to be equivalent: {why}" if why else told
            if not why:
                self.survivors.append(f"{mutation.path}:{mutation.line}\n    - {made.before}\n    + {made.after}")
        self.count[told.partition(":")[0]] += 1
        row = {**mutation._asdict(), **made._asdict(), "tests": len(tests), "verdict": told}
        with (FOLDER / "results.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{mutation.path}:{mutation.line} {mutation.operator.partition('/')[2]}: {told}", flush=True)


def tell(session: Session) -> None:
    """Prints what became of the mutants. It comes first: the copies' last check takes minutes, and may fail."""
    print(", ".join(f"{number} {told}" for told, number in session.count.most_common()))
    for survivor in session.survivors:
        print(f"not seen: {survivor}")
    print("last, whether the tests still pass in each copy without any mutant", flush=True)


def main(arguments: list[str]) -> int:
    """The exit code: 1 if a mutant survived that is not in the list."""
    try:
        count, seed = int(arguments[0]), int(arguments[1])
        pattern = re.compile(arguments[2] if len(arguments) > 2 else "")
    except (IndexError, ValueError, re.error):
        print(__doc__, file=sys.stderr)
        return 64
    FOLDER.mkdir(parents=True, exist_ok=True)
    equivalent = load()
    old = stale(equivalent, ROOT)
    for entry in old:
        print(f"equivalent.toml: {entry.path} has no line {entry.change.before!r} any more; take it out")
    paths = [str(file.relative_to(ROOT)) for name in PACKAGES for file in sorted((ROOT / name).glob("**/*.py"))]
    every = [mutation for path in paths if pattern.search(path) for mutation in mutations_of(ROOT, path)]
    chosen = random.Random(seed).sample(every, min(count, len(every)))
    print(f"{len(chosen)} of {len(every)} mutants, seed {seed}; first, which tests reach which lines", flush=True)
    plain = copy_to(FOLDER / "plain")
    reach = {package: measured(plain, FOLDER, package) for package in {package_of(one.path) for one in chosen}}
    session = Session(reach, equivalent)
    with ThreadPoolExecutor(WORKERS) as pool:
        try:
            for done in [pool.submit(session.play, mutation) for mutation in chosen]:
                done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    tell(session)
    session.copies.check()
    return 1 if session.survivors or old else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
