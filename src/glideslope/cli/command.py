"""The entry point: gathers the commands, and says what they do and need where typer is missing."""

from __future__ import annotations

import importlib.metadata
import sys

INSTALL = "pip install typer rich safetensors"
SUMMARY = f"""Usage: glideslope COMMAND

  inspect CHECKPOINT  Report how orthonormal the matrices of a checkpoint are.
  bench               Time one step on this machine, in milliseconds and in bare matrix products.
  --version           Print the version.

The commands need typer, which is not installed (extra 'cli'): {INSTALL}
Everything else works without it: import glideslope as gs; help(gs)
"""


def main() -> None:
    """Run the `glideslope` command with the arguments of the process."""
    if sys.argv[1:] == ["--version"]:
        print(f"glideslope {importlib.metadata.version('glideslope')}")
        return
    try:
        import typer
    except ModuleNotFoundError:
        asked = not sys.argv[1:] or "--help" in sys.argv
        print(SUMMARY, end="", file=sys.stdout if asked else sys.stderr)
        raise SystemExit(0 if asked else 2) from None

    from glideslope.cli.bench import bench
    from glideslope.cli.inspect import inspect

    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(glideslope)
    app.command()(inspect)
    app.command()(bench)
    app(prog_name="glideslope")


def glideslope() -> None:
    """Optimise over orthonormal matrices in PyTorch. `glideslope --version` prints the version."""
