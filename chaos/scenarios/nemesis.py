"""Random nemeses, several at once, from a seed: see ``chaos.nemeses``."""

from chaos.evidence import STRUCK
from chaos.nemeses import NEMESES, draw
from chaos.nemeses.play import play
from chaos.scenario import Shape, scenario
from chaos.scenarios.mapped import MAPPED
from chaos.stage import Stage
from chaos.topics import EVERYONE, MORE_JAVA

GROUP = "Nemeses"
STRIKES = 8
"""Of one repetition."""
TOPICS = (*EVERYONE, *MORE_JAVA)
SESSION_MS = 4_000
"""Some frozen workers are out of the group before they wake, some are not."""
TOP = {"session.timeout.ms": SESSION_MS}
SOON = {"refresh.topics.interval.ms": 2_000}
WHAT = (
    "drawn from a seed: workers and supervisors killed, frozen and restarted, brokers of both sides killed, frozen and "
    "restarted, a third mirror that joins and leaves, several at once"
)


def _play(stage: Stage) -> None:
    for _ in stage.repeat():
        stage.start_mirror(workers=1)
        schedule = draw(stage.draw, list(NEMESES.values()), STRIKES)
        stage.figure(f"seed {stage.draw}: {'; '.join(map(str, schedule))}")
        play(stage, schedule)
        stage.pair.heal()
        stage.recovered()


@scenario(
    "nemeses-exact", group=GROUP, full=10, quick=1, topics=TOPICS, top=TOP, flow=SOON, workers=2,
    struck=(STRUCK.times(STRIKES),), acknowledged=True, does=WHAT,
)  # fmt: skip
def exact(stage: Stage) -> None:
    _play(stage)


@scenario(
    "nemeses-mapped", group=GROUP, full=10, quick=1, topics=TOPICS, top=TOP, flow={**SOON, **MAPPED}, workers=2,
    struck=(STRUCK.times(STRIKES),), acknowledged=True, exact=False, does=f"mapped: {WHAT}",
)  # fmt: skip
def mapped(stage: Stage) -> None:
    _play(stage)


OLDER, NEWER = "3.9.2", "4.3.0"


@scenario(
    "nemeses-3.9-to-4.3", group=GROUP, full=5, quick=1, topics=TOPICS, top=TOP, flow=SOON, workers=2,
    shape=Shape(version=OLDER, destination_version=NEWER),
    struck=(STRUCK.times(STRIKES),), acknowledged=True, does=f"the same from Kafka {OLDER} to {NEWER}",
)  # fmt: skip
def from_older(stage: Stage) -> None:
    _play(stage)


@scenario(
    "nemeses-4.3-to-3.9", group=GROUP, full=5, quick=1, topics=TOPICS, top=TOP, flow=SOON, workers=2,
    shape=Shape(version=NEWER, destination_version=OLDER),
    struck=(STRUCK.times(STRIKES),), acknowledged=True, does=f"the same from Kafka {NEWER} to {OLDER}",
)  # fmt: skip
def to_older(stage: Stage) -> None:
    _play(stage)
