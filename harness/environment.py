"""What a run ran on: versions, devices and the few variables that matter, for the header of its results file."""

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
             "GLOO_SOCKET_IFNAME", "NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_DISABLE", "NCCL_DEBUG",
             "TORCH_NCCL_ASYNC_ERROR_HANDLING", "PYTORCH_ALLOC_CONF", "CI")


def environment(device: str, backend: str, threads: int) -> dict[str, Any]:
    """`environment` of the run header; backend: gloo, nccl or threads; threads: torch threads a rank."""
    return {
        "ringcheck": version(), "python": platform.python_version(), "torch": torch.__version__,
        "platform": platform.platform(), "processor": _processor(), "cores": os.cpu_count(), "threads": threads,
        "backend": backend, "device": device, "devices": devices(device), "host": platform.node(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "commit": commit(), "matmul_tflops": matmul_tflops() if device == "cuda" else None,
    }


def version() -> str:
    """Version of the installed distribution; "source" when it runs from a checkout."""
    try:
        return metadata.version("ringcheck")
    except metadata.PackageNotFoundError:
        return "source"


def devices(device: str) -> list[str]:
    """Names of the accelerators, or of the processor."""
    if device == "cuda":
        return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return [_processor()]


def commit() -> str | None:
    """The git commit of this source, "+" for local changes, None outside a checkout."""
    folder = Path(__file__).resolve().parent.parent
    if not (folder / ".git").exists():
        return None
    try:
        return subprocess.run(["git", "describe", "--always", "--dirty=+", "--abbrev=12"], cwd=folder, text=True,
                              capture_output=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def matmul_tflops(size: int = 8192, rounds: int = 20) -> float:
    """The day's bf16 matrix product on the first GPU, random numbers: what its clocks give to whatever else runs."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(rounds):
        a @ b
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    del a, b
    torch.cuda.empty_cache()
    return rounds * 2 * size ** 3 / seconds / 1e12


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
