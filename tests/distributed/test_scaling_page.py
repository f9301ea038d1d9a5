"""The table of the page on what processes exchange is that of its formulas, which other tests compare with bytes."""

import re
from pathlib import Path

import pytest
from distributed import costs

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "communication.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) × (\d+) \| (\d+) \| (\S+) \| (\S+) \| (\S+) \|$", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_a_row_of_the_table_is_what_the_formulas_give(row):
    n, p, ranks = map(int, row[:3])
    for said, formula in zip(row[3:], (costs.landing, costs.gathering, costs.tall_skinny_qr), strict=True):
        assert float(said) == pytest.approx(formula(n, p, ranks) / 1e6, rel=6e-3)


def test_the_table_goes_up_to_1024_ranks_and_8192_columns():
    assert {"1024"} <= {row[2] for row in ROWS}
    assert {"8192"} <= {row[1] for row in ROWS}


def test_the_formula_in_the_text_is_that_of_the_table():
    assert "2 (r - 1)/r · (8 p² + 136) bytes" in PAGE
    assert costs.landing(5000, 64, 4) == 2 * 3 / 4 * (8 * 64**2 + 136)
    assert round(costs.gathering(5000, 64, 4) / costs.landing(5000, 64, 4)) == 39
