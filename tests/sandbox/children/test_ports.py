"""A reserved port is nobody else's, but its broker can listen on it."""

from __future__ import annotations

import socket

import pytest

from mirror.sandbox.children.ports import Reservation


@pytest.fixture
def reservation() -> Reservation:
    return Reservation()


def test_nobody_binds_it_by_accident(reservation: Reservation) -> None:
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", reservation.port))
    reservation.release()


def test_nobody_answers_on_it(reservation: Reservation) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", reservation.port), timeout=5)
    reservation.release()


def test_its_broker_listens_on_it_again_and_again(reservation: Reservation) -> None:
    for _ in range(3):
        with socket.socket() as broker:
            broker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java's server sockets do
            broker.bind(("127.0.0.1", reservation.port))
            broker.listen()
            with socket.create_connection(("127.0.0.1", reservation.port), timeout=5), broker.accept()[0]:
                pass
    reservation.release()


def test_reservations_differ_and_a_released_port_is_free() -> None:
    made = [Reservation() for _ in range(50)]
    assert len({reservation.port for reservation in made}) == 50
    for reservation in made:
        reservation.release()
        reservation.release()
    with socket.socket() as other:
        other.bind(("127.0.0.1", made[0].port))
