"""The page "With your trainer" runs, with the packages it is about, and not without the marks of the parameters."""

import re
from pathlib import Path

import pytest
import torch
from interop.packages import needs

import glideslope as gs
from glideslope.optim import groups

PAGE = (Path(__file__).parents[2] / "docs" / "trainers.md").read_text(encoding="utf-8")
SECTIONS = {
    re.search(r"^#+ (.+)$", part, flags=re.MULTILINE)[1]: code
    for part in re.split(r"^(?=## )", PAGE, flags=re.MULTILINE)
    for code in re.findall(r"```py\n(.*?)```", part, flags=re.DOTALL)
}
PACKAGES = ("transformers", "accelerate", "lightning", "skorch", "peft", "schedulefree", "prodigyopt")
# The others give the module itself, or attach to an optimizer that has its parameters already.
BARE = [title for title, code in SECTIONS.items() if re.search(r"gs\.Landing\w+(\((model|self)\.parameters|,)", code)]
sections = pytest.mark.parametrize("title", SECTIONS)


def run(title):
    for package in PACKAGES:
        if re.search(rf"\b{package}\b", SECTIONS[title]):
            needs(package)
    torch.manual_seed(0)
    names = {"__name__": "__main__"}
    exec(compile(SECTIONS[title], title, "exec"), names)
    return names


@sections
def test_the_code_of_a_section_runs_and_ends_orthonormal(title):
    names = run(title)
    if "merged" in names:
        assert not [name for name in names["merged"].state_dict() if "lora" in name]
        return
    trained = next(names[name] for name in ("exact", "averaged", "net", "model") if name in names)
    assert gs.orthogonality(getattr(trained, "module_", trained)).largest_distance < 1e-5


@pytest.mark.parametrize("title", BARE)
def test_no_section_that_gives_bare_parameters_passes_without_their_marks(title, monkeypatch):
    monkeypatch.setattr(groups, "views_of", lambda parameters: {})
    with pytest.raises(ValueError, match=r"starts at distance|is not a matrix"):
        run(title)


def test_every_package_of_the_extra_has_a_section():
    assert (len(SECTIONS), len(BARE)) == (9, 6)
    code = "".join(SECTIONS.values())
    assert [package for package in PACKAGES if package not in code] == []
