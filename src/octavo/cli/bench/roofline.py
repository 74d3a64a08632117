"""What a workload cannot do without on a model, held against what the machine can do. Runs no model.

Bytes: the weights once a step, every key and value once a decoded token. Operations: two for each weight of a layer and
token, of the output and sampled row; a score and a mix for each pair of query and key, in float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from octavo.engine.measure import Workload
from octavo.models.load import ModelFiles
from octavo.ops.tensor import StorageType

# Which limit the products of each storage type meet; all others have codes of up to 6 bits.
ARITHMETIC = {StorageType.F32: "f32", StorageType.F16: "f32", StorageType.BF16: "bf16", StorageType.Q8_0: "exact_int8"}


def arithmetic_of(kind: StorageType) -> str:
    """The name of the limit, as `octavo bench kernels` shows it."""
    return ARITHMETIC.get(kind, "int8")


@dataclass(frozen=True, slots=True)
class Shares:
    """How close a run came: 1 is the limit itself. arithmetic_limit: the one that most products of a layer meet."""

    read: float
    arithmetic: float
    arithmetic_limit: str


@dataclass(frozen=True, slots=True)
class ModelWork:
    """weight_bytes: read in every step. token_values, row_values: weights that each token, each sampled row meets, by
    the limit of their arithmetic. key_bytes: of one token's keys and values in one layer. windows: of each layer, None
    for all keys. pair_operations: of one query and key in one layer."""

    weight_bytes: int
    token_values: Mapping[str, int]
    row_values: Mapping[str, int]
    key_bytes: int
    windows: tuple[int | None, ...]
    pair_operations: int

    @classmethod
    def of(cls, files: ModelFiles, *, weight_bytes: int, kv_bytes: int) -> ModelWork:
        """weight_bytes: as the backend keeps them. kv_bytes: of one value of the pool."""
        spec, dims = files.spec, files.spec.dims
        embed = files.tensors[spec.names.name("embed")]
        head = embed if spec.tied else files.tensors[spec.names.name("head")]
        values: dict[str, int] = {}
        for tensor in files.tensors.values():
            if len(tensor.shape) == 2 and tensor is not embed and tensor is not head:
                name = arithmetic_of(tensor.type)
                values[name] = values.get(name, 0) + tensor.size
        return cls(
            weight_bytes=weight_bytes - (0 if spec.tied else embed.data.nbytes),
            token_values=values,
            row_values={arithmetic_of(head.type): head.size},
            key_bytes=2 * dims.kv_heads * dims.head_size * kv_bytes,
            windows=tuple(layer.window for layer in spec.layers),
            pair_operations=4 * dims.heads * dims.head_size,
        )

    def shares(self, workload: Workload, seconds: float, budget: int, limits: Mapping[str, float]) -> Shares:
        """budget: tokens of a step, at most. limits: as `measure_limits` gives them."""
        batch, prompt, generated = workload.batch, workload.prompt, workload.generated
        steps = -(-batch * prompt // budget) + generated - 1
        decoded = range(prompt + 1, prompt + generated)  # keys that each step after the first token reads
        read = steps * self.weight_bytes + batch * self.key_bytes * self._seen(decoded)
        token, row = (
            sum(2 * count / limits[name] for name, count in values.items())
            for values in (self.token_values, self.row_values)
        )
        pair = self.pair_operations / limits["f32"] * self._seen(range(1, prompt + generated))
        at_best = batch * ((prompt + generated - 1) * token + generated * row + pair)
        most = max(self.token_values, key=lambda name: self.token_values[name])
        return Shares(read / limits["read_bytes"] / seconds, at_best / seconds, most)

    def _seen(self, keys: Iterable[int]) -> int:
        """Keys that all layers see, summed over these numbers of keys."""
        counts = {window: self.windows.count(window) for window in set(self.windows)}
        return sum(n * min(each, window or each) for each in keys for window, n in counts.items())
