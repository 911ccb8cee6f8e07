"""An error that one of the program's signal handlers raises in our code reaches the program."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from kprof_inject.runtime.process_events import let_through


class TimeUp(Exception):
    """Error that the handler of the program raises."""


def time_up(*_: object) -> None:
    raise TimeUp


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, time_up)
    yield
    signal.signal(signal.SIGALRM, before)


def alone() -> None:
    signal.raise_signal(signal.SIGALRM)


def as_a_cause() -> None:
    try:
        alone()
    except TimeUp as error:
        raise ValueError("does not compile") from error


def hidden() -> None:
    """As Triton's compiler wraps each error."""
    try:
        alone()
    except TimeUp:
        raise ValueError("does not compile") from None


def fault() -> None:
    raise ValueError("ours")


def caught(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 (as ours is)
        let_through(error)


@pytest.mark.parametrize("work", [alone, as_a_cause, hidden])
def test_what_a_handler_raised_reaches_the_program(work: Callable[[], None]) -> None:
    with pytest.raises(TimeUp):
        caught(work)


def test_a_fault_of_ours_does_not() -> None:
    caught(fault)


def test_nor_does_what_the_program_has_caught_already() -> None:
    try:
        alone()
    except TimeUp:
        caught(fault)
