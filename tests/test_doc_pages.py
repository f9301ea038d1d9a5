"""Every page of the site runs, is found, leads somewhere and can be read; so does the README.

The code is run by the hook that runs it when the site is built. Pages marked `slow` are run by the build and by the
slow tests.
"""

import re
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "hooks"))

import check_links  # noqa: E402
import run_pages  # noqa: E402

PAGES = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md"))}
PAGES["README.md"] = (ROOT / "README.md").read_text(encoding="utf-8")
OPTIMIZERS = [name for name in PAGES if name.startswith("docs/optimizers/")]
COMPILER = ("ignore::FutureWarning", "ignore::DeprecationWarning")  # its own modules warn about each other
NOT_RUN_HERE = {
    "docs/trainers.md": "needs other packages: run by tests/interop/test_page.py",
    "README.md": "run by tests/test_docs.py, which also says how long its example is",
}
NEEDS = {
    "docs/muon.md": pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon needs torch 2.9"),
    "docs/training-loops.md": pytest.mark.skipif(torch.__version__ < (2, 7), reason="torch 2.6 cannot trace a step"),
    "docs/scaling.md": pytest.mark.skipif(torch.__version__ < (2, 7), reason="FSDP2 on the CPU needs torch 2.7"),
}


def with_code():
    """The pages that have Python code, slow ones marked."""
    for name, text in PAGES.items():
        if run_pages.BLOCK.search(text) and name not in NOT_RUN_HERE:
            slow = [pytest.mark.slow] if re.match(r"---\n(.*\n)*?slow: true\n(.*\n)*?---", text) else []
            yield pytest.param(name, marks=[*slow, *([NEEDS[name]] if name in NEEDS else [])])


@pytest.mark.filterwarnings(*COMPILER)
@pytest.mark.parametrize("name", list(with_code()))
def test_the_code_of_a_page_runs_and_ends_close_to_orthonormal(name):
    shown = run_pages.run(PAGES[name])
    assert 'aria-label="Figure"' not in shown, "a figure without a name: plt.subplots(num='What it shows')"
    printed = "".join(re.findall(r"\.output \}\n(.*?)```", shown, flags=re.DOTALL))
    numbers = re.findall(r"^(?:largest )?(?:distance|difference)[\w ]*: (\S+)$", printed, flags=re.MULTILINE)
    assert all(float(number) < 1e-5 for number in numbers), printed


def test_no_python_block_escapes_the_runner():
    """Fences that the runner does not see: other spellings of the language, or blocks that do not end."""
    for name, text in PAGES.items():
        fences = re.findall(
            r"^ *```+ *\{? *\.?(?:py\w*|ipython|console|pycon)\b", text, flags=re.MULTILINE | re.IGNORECASE
        )
        assert len(fences) == len(run_pages.BLOCK.findall(text)), name


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_page_of_an_optimizer_says_what_it_does_costs_keeps_and_promises(name):
    headings = re.findall(r"^## (.+)$", PAGES[name], flags=re.MULTILINE)
    assert headings == ["Update rule", "Cost", "Memory", "Guarantees", "Limits", "Reference"]


@pytest.mark.parametrize("name", PAGES)
def test_links_of_a_page_lead_somewhere(name):
    prose = re.sub(r"^ *```.*?^ *```$", "", PAGES[name], flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", prose):
        assert target.startswith("https://") or ((ROOT / name).parent / target).exists(), target


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = [name.removeprefix("docs/") for name in PAGES if name.startswith("docs/")]
    assert [name for name in names if not re.search(rf" {re.escape(name)}$", navigation, flags=re.MULTILINE)] == []


@pytest.mark.parametrize("name", PAGES)
def test_no_more_than_three_screens_lie_between_two_headings(name):
    text = re.sub(
        r"^```.*?^```$", lambda block: "\n" * (block[0].count("\n")), PAGES[name], flags=re.MULTILINE | re.DOTALL
    )
    parts = re.split(r"^#.*$", text, flags=re.MULTILINE)
    assert max(part.count("\n") for part in parts) <= 75


# Screens of 1366 pixels show 100 characters of code next to both menus.
@pytest.mark.parametrize("name", sorted(name for name in PAGES if name.startswith("docs/")))
def test_code_is_not_cut_off_on_a_laptop(name):
    blocks = re.findall(
        r"^ *```(?:python|py|bash|console)\b[^\n]*\n(.*?)^ *```$", PAGES[name], flags=re.MULTILINE | re.DOTALL
    )
    assert [line for block in blocks for line in block.splitlines() if len(line) > 100] == []


def test_a_page_that_is_run_shows_what_its_blocks_print_draw_and_write():
    page = """Text.

```python
x = 2
print(x + 1)
```

```python title="script.py"
print("from the script")
```

```console
$ python script.py
```

```python
import matplotlib.pyplot as plt

plt.figure("A line").add_subplot().plot([1, x])
```
"""
    shown = run_pages.run(page)
    assert "print(x + 1)\n```\n\n``` { .text .output }\n3\n```" in shown
    assert "$ python script.py\nfrom the script\n```" in shown
    assert '<figure class="drawn" aria-label="A line"><svg' in shown
    assert "currentColor" in shown
    assert run_pages.INK not in shown


def test_a_page_that_fails_stops_the_build_and_leaves_folder_and_random_numbers_alone():
    here, state = Path.cwd(), torch.random.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        run_pages.run("```python\nimport torch\ntorch.rand(1)\n1 / 0\n```\n")
    with pytest.raises(RuntimeError, match="exit code 3"):
        run_pages.run("```console\n$ exit 3\n```\n")
    assert Path.cwd() == here
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_link_checker_finds_what_leads_nowhere(tmp_path):
    (tmp_path / "index.html").write_text('<a href="b.html#there">1</a><a href="b.html#gone">2</a><img src="no.png">')
    (tmp_path / "b.html").write_text(
        '<h2 id="there">3</h2><a href="../index.html">4</a><a href="https://x.org/y">5</a>'
    )
    (tmp_path / "c.html").write_text(
        '<a href="#here">6</a><a name="here" href="index.html">7</a><a href="/b.html">8</a>'
    )
    broken = check_links.broken_links(tmp_path)
    assert broken == ["b.html: ../index.html", "c.html: /b.html", "index.html: b.html#gone", "index.html: no.png"]
