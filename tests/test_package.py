"""The package as a user meets it: what an import costs, and that every public name is there and documented.

Only the examples need the source tree, so a copy of this file also tests an installed wheel.
"""

import ast
import importlib.metadata
import importlib.resources
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import glideslope as gs

PACKAGE = Path(gs.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCE_TREE = Path(__file__).parents[1]
EXAMPLES = sorted((SOURCE_TREE / "examples").glob("[0-9]*.py"))


def run_python(code: str) -> str:
    """Run code in a fresh interpreter and give back what it printed."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def modules_after(*statements: str) -> list[set[str]]:
    """Top-level names of what a fresh interpreter holds after each statement, without the standard library."""
    listing = "print(json.dumps(list(sys.modules)))"
    listed = run_python("import json, sys\n" + "\n".join(f"{statement}; {listing}" for statement in statements))
    names = [{name.partition(".")[0] for name in json.loads(line)} for line in listed.splitlines()]
    return [found - set(sys.stdlib_module_names) for found in names]


def test_completion_offers_the_public_names_and_no_others():
    assert set(dir(gs)) == {*gs.__all__, "estimators"}


def test_importing_glideslope_loads_nothing_beyond_torch_and_numpy():
    before, after = modules_after("import torch, numpy", "import glideslope")
    assert not after & {"sklearn", "matplotlib", "pandas"}
    assert after - before == {"glideslope"}


def test_the_version_is_that_of_the_distribution():
    assert gs.__version__ == importlib.metadata.version("glideslope")


def test_an_index_can_follow_every_link_of_the_description_and_show_every_picture():
    description = importlib.metadata.metadata("glideslope")["Description"]
    assert "make demo" in description
    assert re.findall(r"\]\((?!https://)[^)]*\)", description) == []
    assert re.findall(r"<(?:img|source|a)\b", description) == []


def test_the_package_says_that_it_is_typed():
    assert importlib.resources.files("glideslope").joinpath("py.typed").is_file()


def test_every_public_formula_exists_and_has_a_docstring():
    assert [name for name in gs.formulas.__all__ if not getattr(gs.formulas, name).__doc__] == []


def test_no_public_formula_is_listed_twice():
    assert len(gs.formulas.__all__) == len(set(gs.formulas.__all__))


def test_every_module_is_short_and_says_what_lives_in_it():
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert ast.get_docstring(ast.parse(text)), f"{path} has no module docstring"
        assert len(text.splitlines()) < 320, f"{path} is too long to read in one sitting: split it"


@pytest.mark.skipif(
    not (SOURCE_TREE / "pyproject.toml").is_file(), reason="the examples are not part of an installed package"
)
def test_the_examples_are_short_enough_to_read_at_a_glance():
    assert "01_procrustes.py" in {path.name for path in EXAMPLES}
    for path in EXAMPLES:
        text = path.read_text(encoding="utf-8")
        assert ast.get_docstring(ast.parse(text)), f"{path.name} has no docstring"
        assert len(text.splitlines()) < 60, f"{path.name} has 60 lines or more"
