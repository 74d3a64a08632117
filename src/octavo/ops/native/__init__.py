"""The native backend: C++ kernels chosen for the processor, a tape recorded once, one call a step without the GIL."""

from octavo.ops.native.backend import NativeOps
from octavo.ops.native.program import NativeProgram, step_symbols

__all__ = ["NativeOps", "NativeProgram", "step_symbols"]
