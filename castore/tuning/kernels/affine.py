"""`affine_f32`: y = a * x + b over a vector of n elements, bound by memory traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.tuning.kernel import Kernel, Signature, Tolerance
from castore.tuning.program import ArraySpec
from castore.tuning.python_source import PythonImplementation, deferred
from castore.tuning.space import Knob, ScheduleSpace
from castore.tuning.wgsl import WgslImplementation

if TYPE_CHECKING:
    from collections.abc import Mapping

# `contiguous` chooses which elements an invocation computes, not how many: with 0 the
# invocations of a workgroup take neighbours at each step, with 1 each has a run of its own.
_WGSL = """
    override workgroup_size: u32;

    @group(0) @binding(0) var<uniform> coefficients: vec2<f32>;
    @group(0) @binding(1) var<storage, read> x: array<f32>;
    @group(0) @binding(2) var<storage, read_write> y: array<f32>;

    @compute @workgroup_size(workgroup_size)
    fn main(
        @builtin(workgroup_id) group: vec3<u32>,
        @builtin(local_invocation_index) lane: u32,
    ) {
        let tile = group.x * workgroup_size * ${items}u;
        for (var item = 0u; item < ${items}u; item++) {
            let strided = item * workgroup_size + lane;
            let run = lane * ${items}u + item;
            let at = tile + select(strided, run, ${contiguous}u == 1u);
            if (at < ${n}u) {
                y[at] = coefficients.x * x[at] + coefficients.y;
            }
        }
    }
"""


def _signature(sizes: Mapping[str, int]) -> Signature:
    n = sizes["n"]
    return Signature(
        inputs=(ArraySpec("coefficients", "float32", (2,)), ArraySpec("x", "float32", (n,))),
        output=ArraySpec("y", "float32", (n,)),
    )


affine_f32 = Kernel(
    id="affine_f32",
    semantic_version=1,
    sizes={"n": 2**20},
    signature=_signature,
    make_inputs=deferred("castore.tuning.kernels.affine_numpy:make_inputs"),
    oracle=deferred("castore.tuning.kernels.affine_numpy:oracle"),
    # |a|, |b| and |x| are at most 1: two roundings to float32 stay below 2.4e-7.
    tolerance=Tolerance(absolute=1e-6, relative=1e-6),
    implementations={
        "wgpu": WgslImplementation(
            template=_WGSL,
            space=ScheduleSpace(
                knobs=(
                    Knob("workgroup_size", (32, 64, 128, 256, 512, 1024)),
                    Knob("items", (1, 2, 4, 8, 16)),
                    Knob("contiguous", (0, 1)),
                ),
                default={"workgroup_size": 64, "items": 1, "contiguous": 0},
                # With one item an invocation the two ways are the same program.
                constraints=("items > 1 or contiguous == 0",),
            ),
            overrides=("workgroup_size",),
            workgroup=("workgroup_size", "1", "1"),
            dispatch=("ceil_div(n, workgroup_size * items)", "1", "1"),
            uniforms=("coefficients",),
        ),
        "numpy": PythonImplementation(
            function="castore.tuning.kernels.affine_numpy:affine",
            space=ScheduleSpace(
                # 0 stands for the whole vector; a block that holds all of it would be the same.
                knobs=(Knob("block", (0, *(2**power for power in range(9, 21)))),),
                default={"block": 0},
                constraints=("block < n",),
            ),
        ),
    },
)
