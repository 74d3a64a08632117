from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

def instruction_sets() -> list[str]: ...
def packed_bytes(type: str, n: int, k: int) -> int: ...
def linear(
    pool: Pool,
    weight: Matrix,
    x: Floats,
    bias: Floats | None = None,
    activation: str | None = None,
    residual: Floats | None = None,
    gated: bool = False,
    rows: Int32 | None = None,
    softcap: float = 0.0,
) -> Floats: ...
def send_all(sockets: list[int], pieces: list[bytes]) -> list[tuple[int, int]]: ...
def embed(weight: Matrix, ids: Int32, scale: float = 1.0) -> Floats: ...

class Pool:
    threads: int
    def __init__(self, threads: int, pin: bool = False) -> None: ...

class Arena:
    def __init__(self) -> None: ...

class Matrix:
    n: int
    k: int
    nbytes: int
    def __init__(self, isa: str, parts: Sequence[tuple[str, int, Bytes]], k: int, pool: Pool, arena: Arena) -> None: ...
    @staticmethod
    def shaped(isa: str, parts: Sequence[tuple[str, int]], k: int) -> Matrix: ...

class MachineLimits:
    read_bytes: float
    int8: float
    exact_int8: float
    bf16: float
    f32: float
    fork_join: float

def measure_limits(isa: str, pool: Pool) -> MachineLimits: ...

class AttentionTime:
    median: float
    least: float
    most: float
    bytes: float
    operations: float

def time_attention(
    isa: str,
    pool: Pool,
    *,
    sequences: int,
    context: int,
    fresh: int,
    heads: int,
    kv_heads: int,
    head_size: int,
    layers: int,
    block_size: int,
    seconds: float,
) -> AttentionTime: ...

class Runtime:
    def __init__(self, isa: str, pool: Pool) -> None: ...

class RowSampler:
    def __init__(self, runtime: Runtime) -> None: ...
    def draw(
        self, rows: Sequence[Floats], filters: Sequence[tuple[float, int, float, float]], uniforms: Sequence[float]
    ) -> list[int]: ...
    def expect(
        self, rows: Sequence[Floats], counts: Sequence[int]
    ) -> list[tuple[float, float, list[tuple[int, float]]]]: ...

class Constant:
    def __init__(self, values: Floats) -> None: ...
    def __len__(self) -> int: ...

class View:
    columns: int
    def split(self, sizes: Sequence[int]) -> list[View]: ...

class Geometry:
    def __init__(
        self, num_blocks: int, layers: int, kv_heads: int, block_size: int, head_size: int, bf16: bool
    ) -> None: ...

class AttendNumbers:
    def __init__(
        self, heads: int, scale: float, window: int, softcap: float, slopes: Constant | None, sinks: Constant | None
    ) -> None: ...

class RopeNumbers:
    def __init__(self, inv_freq: Constant | None, head_size: int, interleaved: bool, scale: float) -> None: ...

class Tape:
    def __init__(
        self, runtime: Runtime, memory: Bytes | None, geometry: Geometry, max_tokens: int, max_length: int
    ) -> None: ...
    def input(self, columns: int) -> View: ...
    def embed(self, table: Matrix, scale: float) -> View: ...
    def linear(
        self, x: View, weight: Matrix, bias: Constant | None, activation: str | None, residual: View | None
    ) -> View: ...
    def gated(self, x: View, gate_up: Matrix, activation: str) -> View: ...
    def norm(
        self, x: View, weight: Constant | None, eps: float, layer: bool, bias: Constant | None, residual: View | None
    ) -> View: ...
    def rope(self, x: View, rope: RopeNumbers) -> View: ...
    def add(self, a: View, b: View) -> View: ...
    def write_kv(self, k: View, v: View, group: int, index: int) -> None: ...
    def attend(
        self, q: View, kv_heads: int, head_size: int, group: int, index: int, numbers: AttendNumbers
    ) -> View: ...
    def logits(self, x: View, weight: Matrix, softcap: float) -> View: ...
    def compile(self, output: View | None, top_columns: int, kept: View | None) -> Program: ...
    def measure(self, output: View | None, kept: View | None) -> int: ...

class Step:
    def __init__(
        self,
        ids: Int32,
        positions: Int32,
        logit_rows: Int32,
        cu_seqlens_q: Int32,
        seq_lens: Int32,
        block_table: Int32,
        slot_mapping: Int64,
    ) -> None: ...

class Program:
    out_columns: int
    nbytes: int
    def run(self, step: Step, inputs: Sequence[Floats], out: Floats, top: Int32 | None) -> None: ...
    def kept(self) -> Floats: ...
    def profile(self, on: bool) -> None: ...
    def times(self) -> list[tuple[str, float, int]]: ...
