"""The code on the pages about the optimizers runs: `python` blocks each on their own, the `py` blocks together."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OPTIMIZERS = sorted((ROOT / "docs" / "optimizers").glob("*.md"))
PAGES = [
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            "quickstart",
            "how-to-choose",
            "training-loops",
            "minimize",
            "minimize-against-other-solvers",
            "muon",
            "scaling",
            "estimators",
            "rotations",
        )
    ),
    *OPTIMIZERS,
]
COMPILER = ("ignore::FutureWarning", "ignore::DeprecationWarning")  # its own modules warn about each other


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.filterwarnings(*COMPILER)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_on_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code in (*blocks(page, "python"), "".join(blocks(page, "py"))):
        exec(compile(code, page.name, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", OPTIMIZERS, ids=lambda page: page.stem)
def test_the_page_of_an_optimizer_says_what_it_does_costs_keeps_and_promises(page):
    headings = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert headings == ["Update rule", "Cost", "Memory", "Guarantees", "Limits", "Reference"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_a_page_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in sorted((ROOT / "docs").rglob("*.md"))]
    assert [page for page in pages if not re.search(rf" {re.escape(page)}$", navigation, flags=re.MULTILINE)] == []
