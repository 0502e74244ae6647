"""The graph of the flows that feed a partition."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from mirror.offsetmap.entries.pins import MOST_HOPS, Edge, Hop
from mirror.relay.durable.rings import ClusterTopic, begin_of, end_of, feeding, nearest, newest, on_the_way, way


def hop(way_: str, *, flow: str = "", digest: str = "", at_ms: int = 0) -> Hop:
    """``a:t>b:u``: from topic t of cluster a into topic u of cluster b."""
    (source, topic), (destination, into) = (place.split(":") for place in way_.split(">"))
    return Hop(Edge(flow or way_, source, topic, destination, into), digest, at_ms)


def shown(hops: object) -> list[str]:
    assert isinstance(hops, list | tuple)
    return [each.edge.flow for each in hops]


CHAIN = [hop("a:t>b:t"), hop("b:t>c:t")]
BESIDE = [hop("b:x>c:x"), hop("c:t>d:t"), hop("z:t>b:y")]


def test_what_feeds_a_place() -> None:
    """The nearest first, and nothing that only passes by."""
    assert shown(feeding([*BESIDE, *CHAIN], ClusterTopic("c", "t"))) == ["b:t>c:t", "a:t>b:t"]
    assert feeding(CHAIN, ClusterTopic("c", "u")) == []


def test_a_ring_is_gone_round_once() -> None:
    ring = [*CHAIN, hop("c:t>a:t")]
    assert shown(feeding(ring, ClusterTopic("c", "t"))) == ["b:t>c:t", "a:t>b:t", "c:t>a:t"]


def test_the_shortest_way() -> None:
    hops = [*CHAIN, *BESIDE, hop("a:t>d:t"), hop("d:t>c:t"), hop("b:t>d:t")]
    assert shown(way(hops, ClusterTopic("a", "t"), ClusterTopic("c", "t"))) in (
        ["a:t>b:t", "b:t>c:t"],
        ["a:t>d:t", "d:t>c:t"],
    )
    assert way(hops, ClusterTopic("c", "x"), ClusterTopic("c", "t")) == []
    assert way([], ClusterTopic("a", "t"), ClusterTopic("c", "t")) == []
    assert shown(way([hop("a:t>c:t")], ClusterTopic("a", "t"), ClusterTopic("c", "t"))) == ["a:t>c:t"]


def test_a_way_back_to_where_it_begins() -> None:
    """A ring at the source alone is none that the flow closes, and has an end all the same."""
    ring = [*CHAIN, hop("c:t>a:t")]
    assert shown(way(ring, ClusterTopic("c", "t"), ClusterTopic("c", "t"))) == ["c:t>a:t", "a:t>b:t", "b:t>c:t"]


def test_all_ways() -> None:
    hops = [*CHAIN, hop("a:t>d:t"), hop("d:t>c:t"), hop("z:t>d:t")]
    found = shown(on_the_way(hops, ClusterTopic("a", "t"), ClusterTopic("c", "t")))
    assert sorted(found) == ["a:t>b:t", "a:t>d:t", "b:t>c:t", "d:t>c:t"]
    assert on_the_way(hops, ClusterTopic("y", "t"), ClusterTopic("c", "t")) == []


def test_the_newest_of_each_edge() -> None:
    old, new = hop("a:t>b:t", digest="1", at_ms=1), hop("a:t>b:t", digest="2", at_ms=2)
    assert newest([new, old]) == newest([old, new]) == [new]


def test_no_more_than_so_many() -> None:
    """The nearest."""
    chain = [hop(f"c{at}:t>c{at + 1}:t") for at in range(2 * MOST_HOPS)]
    found = nearest(chain, ClusterTopic(f"c{2 * MOST_HOPS}", "t"))
    assert list(found) == chain[: MOST_HOPS - 1 : -1]


PLACES = st.tuples(st.sampled_from("abc"), st.sampled_from("tu")).map(lambda pair: ClusterTopic(*pair))
HOPS = st.lists(
    st.builds(lambda begin, end: Hop(Edge("f", *begin, *end), "", 0), PLACES, PLACES), unique_by=lambda hop: hop.edge
)


@given(HOPS, PLACES, PLACES)
def test_a_way_is_one(hops: list[Hop], begin: ClusterTopic, end: ClusterTopic) -> None:
    """It begins and ends where it has to, each hop goes on where the last one ended, and it is part of all ways. There
    is one whenever a search by brute force finds one."""
    found = way(hops, begin, end)
    reached = {begin}
    for _ in hops:
        reached |= {end_of(each.edge) for each in hops if begin_of(each.edge) in reached}
    coming = {end_of(each.edge) for each in hops if begin_of(each.edge) in reached}
    assert bool(found) == (end in coming)
    if found:
        assert begin_of(found[0].edge) == begin
        assert end_of(found[-1].edge) == end
        assert all(end_of(one.edge) == begin_of(other.edge) for one, other in itertools.pairwise(found))
        assert set(found) <= set(on_the_way(hops, begin, end))
