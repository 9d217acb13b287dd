"""Manifests shaped like those that a tuner stores, the same ones in every run."""

from __future__ import annotations

import random

from castore import Value, WeakLink, object_id

COUNT = 5_000
SEED = 20_250_301
TOPOLOGY = str(object_id(b"the topology of the benches"))

_OPERATIONS = ("gemm_f32", "affine_f32", "softmax_f16", "layer_norm_f32", "conv2d_f16")
_WORKGROUPS = (32, 64, 128, 256)
_FAILURES = (
    ("compile", "the shader does not compile: unresolved identifier in the unrolled body"),
    ("oracle", "1,048,576 elements compared, 4,096 outside the tolerance, the first at 255"),
    ("limits", "the tile needs 65,536 bytes of workgroup memory, the adapter has 32,768"),
)


def kernel(number: int) -> str:
    """Return the kernel text of manifest `number`, unlike any other's."""
    operation = _OPERATIONS[number % len(_OPERATIONS)]
    return f"{operation}[m={64 + number},n=512,k={32 * (1 + number % 61)}]"


def make(count: int, *, seed: int = SEED) -> list[dict[str, Value]]:
    """Return `count` tuning manifests of 2 to 3 KB, no two alike."""
    chance = random.Random(seed)  # noqa: S311 - repeatable data, no secrets
    return [_manifest(chance, number) for number in range(count)]


def _manifest(chance: random.Random, number: int) -> dict[str, Value]:
    median_ns = chance.randrange(20_000, 2_000_000)
    schedules = [_schedule(chance) for _ in range(chance.randrange(6, 10))]
    failures = chance.randrange(2, 4)
    return {
        "kind": "tuning",
        "schema": 1,
        "kernel": kernel(number),
        "applicability": _applicability(chance, number),
        "winner": _result(chance, schedules[0], median_ns),
        "default": _result(chance, schedules[-1], 3 * median_ns),
        "tie_set": list[Value](schedules[:-1]),
        "summary": {
            "evaluated": 48,
            "failed": failures,
            "skipped": chance.randrange(200),
            "fastest_first_ns": median_ns,
            "slowest_first_ns": 40 * median_ns,
        },
        "failures": [_failure(chance, index) for index in range(failures)],
        "effort": {
            "candidates_max": 48,
            "samples": 3,
            "finalists": 6,
            "finalist_samples": 11,
            "time_limit_s": 20.0,
        },
        "evidence": WeakLink(object_id(chance.randbytes(32))),
        "provenance": {
            "time_ns": 1_740_000_000_000_000_000 + chance.randrange(10**15),
            "host": f"node-{chance.randrange(64):02}",
            "writer": "castore 0.1.0",
            "origin": "tuned",
        },
    }


def _applicability(chance: random.Random, number: int) -> dict[str, Value]:
    size = 64 + number
    return {
        "kernel_id": _OPERATIONS[number % len(_OPERATIONS)],
        "implementation": "wgpu",
        "semantic_version": 1,
        "source": chance.randbytes(32).hex(),
        "problem": {
            "sizes": {"m": size, "n": 512, "k": 32 * (1 + number % 61)},
            "inputs": {"a": ["float32", [size, 512]], "b": ["float32", [512, 512]]},
            "output": ["float32", [size, 512]],
        },
        "tolerance": {"absolute": 1e-5, "relative": 1e-4},
        "schedule_space": chance.randbytes(32).hex(),
        "measuring_policy": {
            "version": 1,
            "warmups": 1,
            "sample_floor_ns": 200_000,
            "dispatches_max": 64,
            "order": "median, p95, schedule",
        },
        "measuring_policy_digest": chance.randbytes(32).hex(),
    }


def _schedule(chance: random.Random) -> dict[str, Value]:
    return {
        "workgroup_size": chance.choice(_WORKGROUPS),
        "items_per_invocation": chance.choice((1, 2, 4, 8)),
        "vector_width": chance.choice((1, 2, 4)),
        "tile": chance.choice((8, 16, 32)),
        "unroll": chance.choice((1, 2, 4)),
    }


def _result(chance: random.Random, schedule: dict[str, Value], median_ns: int) -> dict[str, Value]:
    return {
        "schedule": schedule,
        "report": {
            "compared": 1_048_576,
            "mismatch_count": 0,
            "absolute_error_max": chance.random() * 1e-6,
            "relative_error_max": chance.random() * 1e-5,
        },
        "timing": {
            "source": "gpu timestamp",
            "samples": 11,
            "dispatches": chance.choice((1, 4, 16)),
            "minimum_ns": median_ns - chance.randrange(5_000),
            "median_ns": median_ns,
            "p95_ns": median_ns + chance.randrange(90_000),
        },
    }


def _failure(chance: random.Random, index: int) -> dict[str, Value]:
    stage, reason = _FAILURES[index]
    return {"schedule": _schedule(chance), "stage": stage, "reason": reason}
