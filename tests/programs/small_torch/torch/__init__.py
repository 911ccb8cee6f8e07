"""As much of torch as the programs of the tests use, with no GPU: the real one takes longer to import than they run.

Tests whose subject is torch have the real one.
"""

from types import SimpleNamespace

__version__ = "2.7.0"
version = SimpleNamespace(cuda=None, hip=None)
cuda = SimpleNamespace(is_available=lambda: False, device_count=lambda: 0, get_device_properties=None)


class Dtype:
    """What Triton knows of one is what it prints."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"torch.{self.name}"


float32, uint8 = Dtype("float32"), Dtype("uint8")


class Tensor:
    """On the host, as what lies on the fake GPU is. Slices share its memory."""

    def __init__(self, values):
        self._values = values
        self.dtype = globals()[values.dtype.name]

    def data_ptr(self):
        return self._values.ctypes.data

    def untyped_storage(self):
        return Storage(self._values)

    def tolist(self):
        return self._values.tolist()

    def sum(self):
        return self._values.sum()

    def __getitem__(self, at):
        return Tensor(self._values[at])

    def __setitem__(self, at, values):
        self._values[at] = _bare(values)

    def __add__(self, other):
        return Tensor(self._values + _bare(other))

    def __mul__(self, other):
        return Tensor(self._values * _bare(other))

    def __pow__(self, other):
        return Tensor(self._values ** _bare(other))


class Storage:
    def __init__(self, values):
        self._values = values if values.base is None else values.base

    def data_ptr(self):
        return self._values.ctypes.data

    def nbytes(self):
        return self._values.nbytes


def _bare(values):
    return values._values if isinstance(values, Tensor) else values


def zeros(*shape, dtype=float32):
    import numpy

    return Tensor(numpy.zeros(shape, dtype.name))


empty = zeros
from_numpy = Tensor


def zeros_like(other):
    return zeros(*other._values.shape, dtype=other.dtype)


def arange(start, end, dtype=float32):
    import numpy

    return Tensor(numpy.arange(start, end, dtype=dtype.name))
