"""`python -m experiments`; says what to install where a requirement is missing."""

import sys

INSTALL = "pip install -e '.[reproduce,peers]'"

try:
    from experiments.command import main
except ModuleNotFoundError as error:
    print(f"experiments: {error.name} is not installed; in the clone: {INSTALL}", file=sys.stderr)
    raise SystemExit(2) from None

main()
