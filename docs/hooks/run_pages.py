"""Runs the code on the pages of the site: when it is built, and in the tests.

All Python blocks of a page run in order and share their names, like the cells of a notebook, in an empty folder. Where
a page begins with `execute: true`, the site shows under each block what it prints and draws. A block with a title,
`title="train.py"`, is written to that file instead; `$` lines of a `console` block are run by the shell.
"""

from __future__ import annotations

import contextlib
import html
import io
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import traceback
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^( *)```(python|py|console)( [^\n]*)?\n(.*?)^\1```$", flags=re.MULTILINE | re.DOTALL)
INK = "#010203"  # becomes the colour of the text around a figure, light or dark
LINES = ["#3f7fd9", "#e06c1f", "#2a9d6f", "#b5519b", "#8c8c8c"]
STYLE = {
    **dict.fromkeys(["text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"], INK),
    **dict.fromkeys(["figure.facecolor", "axes.facecolor", "legend.facecolor", "savefig.facecolor"], "none"),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "font.size": 13.0,
    "lines.linewidth": 2.0,
    "figure.figsize": (6.4, 3.6),
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "glideslope",
}


class Page:
    """The code of one page while it runs."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def shown(self, block: re.Match[str]) -> str:
        """Run a block; return it with what it printed and drew, as Markdown."""
        indent, language, options, code = block[1], block[2], block[3] or "", textwrap.dedent(block[4])
        if language == "console":
            printed = "".join(line + "\n" + in_shell(line[2:]) for line in code.splitlines() if line.startswith("$ "))
            return textwrap.indent(f"```console\n{printed}```", indent)
        if title := re.search(r'title="(\S+)"', options):
            Path(title[1]).write_text(code, encoding="utf-8")
            return block[0]
        parts = [textwrap.dedent(block[0])]
        if printed := self.printed(code):
            parts.append(f"``` {{ .text .output }}\n{printed}```")
        return textwrap.indent("\n\n".join(parts + figures()), indent)

    def printed(self, code: str) -> str:
        """What the code prints, with one line break at its end."""
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(code, "<page>", "exec"), self.names)
        printed = output.getvalue().rstrip()
        return f"{printed}\n" if printed else ""


def in_shell(command: str) -> str:
    """What a command prints, with the programs of this environment on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{command!r} ended with exit code {done.returncode}:\n{done.stderr}")
    return done.stdout


def figures() -> list[str]:
    """The open figures as SVG inside the page, whose lines and letters have the colour of the text; closes them."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    from matplotlib import pyplot

    drawn = []
    for number in pyplot.get_fignums():
        figure, file = pyplot.figure(number), io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
        svg = file.getvalue()[file.getvalue().index("<svg") :].replace(INK, "currentColor")
        svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
        svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1))
        label = html.escape(figure.get_label() or "Figure")
        drawn.append(
            f'<figure class="drawn" aria-label="{label}">{svg.strip()}<figcaption>{label}</figcaption></figure>'
        )
    pyplot.close("all")
    return drawn


def run(markdown: str) -> str:
    """Run the code of a page; return the page with all outputs. Random numbers and the folder are put back."""
    import matplotlib
    import torch

    matplotlib.use("Agg")
    page, here = Page(), Path.cwd()
    with torch.random.fork_rng(), tempfile.TemporaryDirectory() as folder, matplotlib.rc_context(STYLE):
        matplotlib.rcParams["axes.prop_cycle"] = matplotlib.cycler(color=LINES)
        torch.manual_seed(0)
        os.chdir(folder)
        try:
            return BLOCK.sub(page.shown, markdown)
        finally:
            os.chdir(here)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by MkDocs for every page."""
    if not page.meta.get("execute"):
        return markdown
    try:
        return run(markdown)
    except Exception as error:
        from mkdocs.exceptions import PluginError

        raise PluginError(f"The code of {page.file.src_uri} does not run:\n{traceback.format_exc()}") from error
