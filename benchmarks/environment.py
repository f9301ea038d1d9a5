"""What the numbers were measured on and with."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any

import torch

PEERS = {"geoopt": "geoopt", "pogo-torch": "pogo", "geotorch": "geotorch"}  # distribution -> module


@dataclass(frozen=True)
class Environment:
    """Machine, versions and settings of a run; `peers` maps distributions to versions, None where not installed."""

    command: str
    processor: str
    device: str
    dtype: str
    threads: int
    python: str
    torch_version: str
    blas: str
    glideslope_version: str
    peers: dict[str, str | None]

    @classmethod
    def now(cls, program: str, device: str, dtype: torch.dtype) -> Environment:
        """The environment of this process; its command is the program with the arguments of the process."""
        return cls(
            command=" ".join([program, *sys.argv[1:]]),
            processor=torch.cuda.get_device_name(device) if device.startswith("cuda") else processor_name(),
            device=device,
            dtype=str(dtype).removeprefix("torch."),
            threads=torch.get_num_threads(),
            python=platform.python_version(),
            torch_version=torch.__version__,
            blas="MKL" if torch.backends.mkl.is_available() else "no MKL",  # type: ignore[no-untyped-call]
            glideslope_version=metadata.version("glideslope"),
            peers={distribution: installed_version(distribution) for distribution in PEERS},
        )

    def as_json(self) -> dict[str, Any]:
        """For json.dump."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        peers = ", ".join(f"{name} {version or 'not installed'}" for name, version in self.peers.items())
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return [
            f"{self.processor}, {threads}, {self.device}, {self.dtype}",
            f"torch {self.torch_version} ({self.blas}), Python {self.python}, "
            f"glideslope {self.glideslope_version}; {peers}",
        ]


def installed_version(distribution: str) -> str | None:
    """Version of an installed peer, None if it is not installed."""
    if util.find_spec(PEERS[distribution]) is None:
        return None
    return metadata.version(distribution)


def processor_name() -> str:
    """Name of the CPU, from /proc/cpuinfo where there is one."""
    try:
        entries = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        entries = []
    names = [line.partition(":")[2].strip() for line in entries if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
