"""The numpy backend: float32, eager, every feature, written to be read. The oracle for every other backend."""

from octavo.ops.numpy.backend import NumpyOps

__all__ = ["NumpyOps"]
