"""Every public name has an example in its docstring, and it runs as it is written."""

import doctest
import inspect

import pytest
import torch

import glideslope as gs

PARTS = {"": gs.__all__, "formulas.": gs.formulas.__all__, "problems.": gs.problems.__all__}
NAMES = [f"{part}{name}" for part, names in PARTS.items() for name in names]
NAMES += ["theory.Constants", "theory.quadratic_constants", "theory.Theory"]
NAMES += ["estimators.OnlinePCA", "estimators.OnlineICA"]


def found(name):
    thing = gs
    for word in name.split("."):
        thing = getattr(thing, word)
    return thing


BASES = ("problems.Problem", "problems.RowSum", "problems.Optimum")  # nothing to call
CALLABLE = [name for name in NAMES if callable(found(name)) and name not in BASES]


@pytest.mark.parametrize("name", CALLABLE)
def test_the_example_in_a_docstring_runs_and_prints_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name == "load_checkpoint":  # which reads what the example of save_checkpoint wrote
        run("save_checkpoint")
    run(name)


def run(name):
    torch.manual_seed(0)
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(found(name)), {"torch": torch, "gs": gs}, name, "", 0)
    assert examples.examples, f"gs.{name} has no example"
    report = []
    result = doctest.DocTestRunner().run(examples, out=report.append)
    assert result.failed == 0, "".join(report)
