"""The layers of the package: imports go down or stay inside their layer, and the lowest needs torch alone.

The checker reads syntax trees, so an import inside a function or under TYPE_CHECKING counts too.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import glideslope

PACKAGE = Path(glideslope.__file__).parent
ROOT = "glideslope"

# Part of the package -> its layer. The root re-exports from everywhere, so it is above all of them.
LAYERS = {
    "files": 1,
    "pickled_values": 1,
    "formulas": 1,
    "theory": 1,
    "engine": 2,
    "ranks": 3,
    "stiefel": 4,
    "variance": 5,
    "optim": 6,
    "solve": 7,
    "streams": 8,
    "estimators": 9,
    "cli": 10,
    ROOT: 11,
    "__main__": 12,
}

# Part of the package -> what it may import besides the standard library and glideslope itself.
FOREIGN = {
    "files": set(),
    "pickled_values": {"torch", "numpy"},
    "formulas": {"torch"},
    "theory": {"torch"},
    "engine": {"torch"},
    "ranks": {"torch"},
    "stiefel": {"torch", "numpy"},
    "variance": {"torch"},
    "optim": {"torch", "numpy"},
    "solve": {"torch", "numpy", "matplotlib", "pandas"},  # the last two only when a result is drawn or tabulated
    "streams": {"torch", "numpy"},
    "estimators": {"torch", "numpy", "sklearn"},
    "cli": {"torch", "numpy", "rich", "safetensors", "typer"},
    ROOT: {"torch"},
    "__main__": set(),
}


def part_of(module: str) -> str:
    """The part of the package a dotted module name belongs to: glideslope.formulas.field -> formulas."""
    return module.split(".")[1] if "." in module else ROOT


def imported_modules(tree: ast.Module, package: str) -> Iterator[str]:
    """Absolute dotted names of all that a module of the given package imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                origin = ".".join([*parents, origin] if origin else parents)
            if origin != ROOT:
                yield origin
            else:  # `from glideslope import formulas` means the part; any other name means the root
                yield from (f"{ROOT}.{alias.name}" if alias.name in LAYERS else ROOT for alias in node.names)


def complaints(package_folder: Path) -> list[str]:
    """All imports under the folder that break the rules, one sentence each."""
    found = []
    for path in sorted(package_folder.rglob("*.py")):
        location = path.relative_to(package_folder).with_suffix("")
        names = [name for name in location.parts if name != "__init__"]
        here = ".".join([ROOT, *names])
        package = here if path.name == "__init__.py" else here.rpartition(".")[0]
        part = part_of(here)
        if part not in LAYERS:
            found.append(f"{here} belongs to no layer: give {part} a place in LAYERS")
            continue
        for target in imported_modules(ast.parse(path.read_text(encoding="utf-8")), package):
            top = target.partition(".")[0]
            if top == ROOT:
                other = part_of(target)
                if LAYERS.get(other, 99) > LAYERS[part]:
                    found.append(f"{here} (layer {LAYERS[part]}) imports {target}, which is above it")
                elif part == "formulas" and other != "formulas":
                    found.append(f"{here} imports {target}: the formulas stand on torch alone")
            elif top not in sys.stdlib_module_names and top not in FOREIGN[part]:
                found.append(f"{here} imports {target}; {part} may use {', '.join(sorted(FOREIGN[part]))}")
    return found


def test_imports_go_down_or_stay_inside_their_layer():
    assert complaints(PACKAGE) == []


@pytest.mark.parametrize(
    ("planted_in", "statement"),
    [
        ("formulas/field.py", "from glideslope.optim import LandingSGD"),
        ("formulas/field.py", "import glideslope.stiefel.points"),
        ("formulas/field.py", "from ..stiefel import points"),
        ("formulas/field.py", "from .. import optim"),
        ("formulas/field.py", "def later():\n    from glideslope import solve"),
        ("formulas/field.py", "from glideslope import theory"),
        ("formulas/field.py", "import numpy"),
        ("formulas/__init__.py", "from ..optim import LandingSGD"),
        ("theory.py", "from .optim import LandingSGD"),
        ("ranks/sums.py", "from glideslope.stiefel import views"),
        ("stiefel/points.py", "from glideslope import random_stiefel"),
        ("variance/saga_and_svrg.py", "from glideslope.optim import LandingSGD"),
        ("optim/landing.py", "import glideslope as gs"),
        ("solve/minimize.py", "import sklearn.decomposition"),
        ("cli/bench.py", "def later():\n    import matplotlib"),
        ("helpers.py", "import torch"),
    ],
)
def test_a_planted_wrong_import_is_caught(tmp_path, planted_in, statement):
    path = tmp_path / planted_in
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(statement)
    assert len(complaints(tmp_path)) == 1


@pytest.mark.parametrize(
    ("planted_in", "statement"),
    [
        (
            "formulas/field.py",
            "import math\nimport torch\nfrom glideslope.formulas.orthogonality import gram",
        ),
        ("formulas/field.py", "from .orthogonality import gram\nfrom . import orthogonality"),
        ("theory.py", "from glideslope import formulas"),
        (
            "optim/landing.py",
            "from ..stiefel.points import project\nfrom glideslope.formulas import landing_step",
        ),
        ("__init__.py", "from . import formulas\nfrom glideslope.optim import LandingSGD"),
    ],
)
def test_a_right_import_is_left_alone(tmp_path, planted_in, statement):
    path = tmp_path / planted_in
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(statement)
    assert complaints(tmp_path) == []
