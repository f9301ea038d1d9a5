"""The entry point: gathers the commands, and says what to install where typer is missing."""

from __future__ import annotations

import sys

INSTALL = 'pip install "glideslope[cli]"'


def main() -> None:
    """Run the `glideslope` command with the arguments of the process."""
    try:
        import typer
    except ModuleNotFoundError:
        print(f"glideslope: the command needs typer, which is not installed: {INSTALL}", file=sys.stderr)
        raise SystemExit(2) from None

    from glideslope.cli.bench import bench
    from glideslope.cli.inspect import inspect

    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(glideslope)
    app.command()(inspect)
    app.command()(bench)
    app(prog_name="glideslope")


def glideslope() -> None:
    """Optimise over orthonormal matrices in PyTorch."""
