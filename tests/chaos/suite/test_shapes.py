"""Which clusters serve the scenarios of several shapes."""

from chaos.scenario import Shape
from chaos.suite.run import serving

PLAIN = Shape()
PROXIED = Shape(proxied=True)
OWN = Shape(source=(("a", "1"),), destination=(("b", "2"),))


def test_all_on_one_pair() -> None:
    shapes = [PLAIN, PROXIED, OWN]
    assert {serving(shape, shapes) for shape in shapes} == {
        Shape(source=(("a", "1"),), destination=(("b", "2"),), proxied=True)
    }


def test_what_cannot_be_shared() -> None:
    old, small, to_old = Shape(version="3.0.0"), Shape(brokers=1), Shape(destination_version="3.0.0")
    for one in (old, small, to_old):
        assert serving(one, [PLAIN, PROXIED, old, small, to_old]) == one
    assert serving(PLAIN, [PLAIN, PROXIED, old, small]) == PROXIED


def test_one_property_with_two_values() -> None:
    contrary = Shape(source=(("a", "2"),))
    assert OWN.joined(contrary) == contrary
    assert contrary.joined(OWN) == OWN


def test_brokers_that_ask_an_authorizer_serve_everybody() -> None:
    """To what has no ACL, everybody has every right."""
    authorized = Shape(proxied=True, authorized=True)
    assert {serving(shape, [PLAIN, OWN, authorized]) for shape in (PLAIN, OWN, authorized)} == {
        Shape(source=OWN.source, destination=OWN.destination, proxied=True, authorized=True)
    }
