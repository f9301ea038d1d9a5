"""The documentation cannot rot: what it names exists. (`test_doc_pages.py` runs the code on the pages.)"""

import ast
import functools
import importlib
import re
from pathlib import Path

import pytest

import glideslope as gs

ROOT = Path(__file__).parents[1]
PAPER_MAP = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
CODE_WORDS = sorted(set(re.findall(r"`([^`\n]+)`", PAPER_MAP)))


@functools.cache
def functions_of(path: Path) -> set[str]:
    """Names of all functions defined in a file, methods included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def resolve(dotted_name: str) -> object:
    """The object a dotted name stands for, importing modules where attributes are not enough."""
    found = importlib.import_module("glideslope")
    here = "glideslope"
    for name in dotted_name.split(".")[1:]:
        here = f"{here}.{name}"
        found = getattr(found, name) if hasattr(found, name) else importlib.import_module(here)
    return found


def rows_of(section: str) -> list[list[str]]:
    """The table rows of one section of the paper map, split into cells, without the heading row."""
    text = PAPER_MAP.split(f"## {section}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_api_page_has_every_public_name_once():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    # griffe takes `glideslope.minimize` for the module of that name.
    shown = re.findall(r"^::: glideslope\.(\S+)$", page.replace("solve.minimize.", ""), flags=re.MULTILINE)
    modules = {"PAPER_OPTIONS", "__version__", "formulas", "problems", "theory"}
    public = {*gs.__all__} - modules
    public |= {f"{part}.{name}" for part in ("formulas", "problems") for name in getattr(gs, part).__all__}
    assert len(shown) == len(set(shown))
    assert public - set(shown) == set()
    assert [name for name in shown if not resolve(f"glideslope.{name}").__doc__] == []


def test_the_help_of_the_package_names_every_public_name():
    words = set(re.findall(r"\w+", gs.__doc__))
    assert set(gs.__all__) - {"__version__"} - words == set()


def test_every_test_named_in_the_paper_map_exists():
    for name in [word for word in CODE_WORDS if word.startswith("tests/")]:
        path, _, function = name.partition("::")
        assert (ROOT / path).is_file(), name
        assert not function or function in functions_of(ROOT / path), name


def test_every_function_named_in_the_paper_map_exists_and_has_a_docstring():
    names = [word for word in CODE_WORDS if word.startswith("glideslope.")]
    assert [name for name in names if not resolve(name).__doc__] == []


def test_the_paper_map_names_nothing_that_is_neither_code_nor_test():
    assert [word for word in CODE_WORDS if not word.startswith(("tests/", "glideslope."))] == []


def test_the_paper_map_has_every_equation_and_figure_in_order():
    numbers = [int(row[0].strip("()")) for row in rows_of("Equations") if re.fullmatch(r"\(\d+\)", row[0])]
    assert numbers == [*range(1, 21), 27]
    assert [int(row[0]) for row in rows_of("Figures")] == list(range(1, 8))


@pytest.mark.parametrize("section", ["Equations", "Lemmas and propositions"])
def test_what_the_paper_map_calls_done_has_code_and_a_test(section):
    for row in rows_of(section):
        *_, code, tests, status = row
        assert re.search(r"done|corrected|not yet|definition", status), row
        if re.match(r"done|corrected", status):
            assert "glideslope." in code, row
            assert "tests/" in tests, row


def test_every_public_formula_is_in_the_paper_map():
    assert [name for name in gs.formulas.__all__ if f"`glideslope.formulas.{name}`" not in PAPER_MAP] == []


def test_the_code_of_the_readme_is_short_and_prints_a_distance_close_to_zero(capsys):
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        assert len(block.splitlines()) <= 12
        exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})
        assert float(capsys.readouterr().out.split()[-1]) < 1e-5
