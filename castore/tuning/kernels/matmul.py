"""`matmul_f32`: C = A B for row-major A, shape (m, k), and B, shape (k, n)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.tuning.kernel import Kernel, Signature, Tolerance
from castore.tuning.program import ArraySpec
from castore.tuning.python_source import PythonImplementation, deferred
from castore.tuning.space import Knob, ScheduleSpace
from castore.tuning.wgsl import WgslImplementation

if TYPE_CHECKING:
    from collections.abc import Mapping

# A workgroup computes a tile of C of tile_m by tile_n elements. It walks along k, tile_k at
# a time, through workgroup memory; an invocation keeps rows by cols sums in private memory.
# Its elements lie a workgroup apart, so that neighbours read and write neighbours.
_WGSL = """
    override workgroup_x: u32;
    override workgroup_y: u32;

    @group(0) @binding(0) var<storage, read> a: array<f32>;
    @group(0) @binding(1) var<storage, read> b: array<f32>;
    @group(0) @binding(2) var<storage, read_write> c: array<f32>;

    var<workgroup> tile_a: array<f32, ${tile_a_items}>;
    var<workgroup> tile_b: array<f32, ${tile_b_items}>;

    @compute @workgroup_size(workgroup_x, workgroup_y)
    fn main(
        @builtin(workgroup_id) group: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>,
        @builtin(local_invocation_index) lane: u32,
    ) {
        let lanes = workgroup_x * workgroup_y;
        let first_row = group.y * ${tile_m}u;
        let first_col = group.x * ${tile_n}u;
        var sums: array<f32, ${sums}>;

        for (var first_k = 0u; first_k < ${k}u; first_k += ${tile_k}u) {
            for (var at = lane; at < ${tile_a_items}u; at += lanes) {
                let row = first_row + at / ${tile_k}u;
                let col = first_k + at % ${tile_k}u;
                var value = 0.0;
                if (row < ${m}u && col < ${k}u) { value = a[row * ${k}u + col]; }
                tile_a[at] = value;
            }
            for (var at = lane; at < ${tile_b_items}u; at += lanes) {
                let row = first_k + at / ${tile_n}u;
                let col = first_col + at % ${tile_n}u;
                var value = 0.0;
                if (row < ${k}u && col < ${n}u) { value = b[row * ${n}u + col]; }
                tile_b[at] = value;
            }
            workgroupBarrier();
            for (var step = 0u; step < ${tile_k}u; step++) {
                for (var i = 0u; i < ${rows}u; i++) {
                    let left = tile_a[(i * workgroup_y + local.y) * ${tile_k}u + step];
                    for (var j = 0u; j < ${cols}u; j++) {
                        let right = tile_b[step * ${tile_n}u + j * workgroup_x + local.x];
                        sums[i * ${cols}u + j] += left * right;
                    }
                }
            }
            workgroupBarrier();
        }

        for (var i = 0u; i < ${rows}u; i++) {
            let row = first_row + i * workgroup_y + local.y;
            for (var j = 0u; j < ${cols}u; j++) {
                let col = first_col + j * workgroup_x + local.x;
                if (row < ${m}u && col < ${n}u) { c[row * ${n}u + col] = sums[i * ${cols}u + j]; }
            }
        }
    }
"""


def _signature(sizes: Mapping[str, int]) -> Signature:
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    return Signature(
        inputs=(ArraySpec("a", "float32", (m, k)), ArraySpec("b", "float32", (k, n))),
        output=ArraySpec("c", "float32", (m, n)),
    )


_BLOCKS = (24, 48, 96, 192)

matmul_f32 = Kernel(
    id="matmul_f32",
    semantic_version=1,
    sizes={"m": 192, "n": 192, "k": 192},
    signature=_signature,
    make_inputs=deferred("castore.tuning.kernels.matmul_numpy:make_inputs"),
    oracle=deferred("castore.tuning.kernels.matmul_numpy:oracle"),
    # Sums of k products of numbers in [-1, 1), k roundings each of at most k * 2^-24: no more
    # than 2.2e-3 for k = 192, and a few 1e-6 in practice. A missing product shows as about 0.1.
    tolerance=Tolerance(absolute=1e-4, relative=1e-5),
    implementations={
        "wgpu": WgslImplementation(
            template=_WGSL,
            space=ScheduleSpace(
                knobs=(
                    Knob("workgroup_x", (4, 8, 16, 32)),
                    Knob("workgroup_y", (4, 8, 16)),
                    Knob("rows", (1, 2, 4, 8)),
                    Knob("cols", (1, 2, 4)),
                    Knob("tile_k", (8, 16, 32)),
                ),
                default={"workgroup_x": 8, "workgroup_y": 8, "rows": 1, "cols": 1, "tile_k": 8},
                # Some drivers end loops silently after 65,535 iterations of an invocation.
                constraints=("k * (rows * cols + 2 * rows + cols + 2) < 65535",),
            ),
            overrides=("workgroup_x", "workgroup_y"),
            derived={
                "tile_m": "workgroup_y * rows",
                "tile_n": "workgroup_x * cols",
                "tile_a_items": "workgroup_y * rows * tile_k",
                "tile_b_items": "workgroup_x * cols * tile_k",
                "sums": "rows * cols",
            },
            workgroup=("workgroup_x", "workgroup_y", "1"),
            dispatch=("ceil_div(n, tile_n)", "ceil_div(m, tile_m)", "1"),
            workgroup_bytes="4 * (tile_a_items + tile_b_items)",
        ),
        "numpy": PythonImplementation(
            function="castore.tuning.kernels.matmul_numpy:matmul",
            space=ScheduleSpace(
                knobs=(
                    Knob("block_m", _BLOCKS),
                    Knob("block_n", _BLOCKS),
                    Knob("block_k", _BLOCKS),
                ),
                default={"block_m": 48, "block_n": 48, "block_k": 48},
                # A block that would hold twice the matrix does what the next smaller one does;
                # the default's is left in for matrices that are smaller still.
                constraints=tuple(f"block_{size} < max(2 * {size}, 49)" for size in "mnk"),
            ),
        ),
    },
)
