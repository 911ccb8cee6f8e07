"""A torch that sees no GPU, for programs that only compile: the real one takes longer to import than they take."""

from types import SimpleNamespace

__version__ = "2.7.0"
version = SimpleNamespace(cuda=None, hip=None)
uint8 = "uint8"
cuda = SimpleNamespace(is_available=lambda: False, device_count=lambda: 0)


def empty(*sizes, dtype):
    """Nothing is put in it."""
