"""The readme: short, with the commands to begin with and pictures that are there; tests/test_docs.py runs its code."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_can_be_read_in_a_minute():
    assert len(README.splitlines()) < 100


def test_the_readme_names_the_two_commands_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("demo", "test"):
        assert f"make {command}" in README
        assert f"\n{command}:" in makefile


def test_the_pictures_of_the_readme_exist():
    pictures = re.findall(r"(?:src|srcset)=\"([^\"]+)\"", README)
    assert len(pictures) == 2
    assert [path for path in pictures if not (ROOT / path).is_file()] == []


def test_version_and_date_are_the_same_in_all_places():
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d\S*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest[1] == version
    assert f"\nversion: {version}\n" in citation
    assert f"\ndate-released: {newest[2]}\n" in citation
