"""`python -m experiments`: the options, and what they mean for the scales."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

EXPERIMENTS = ("penalty", "pca", "ica", "cnn")
NAMES = (*EXPERIMENTS, "all", "seconds", "report")


def main() -> None:
    """Run the command with the arguments of the process."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(no_args_is_help=True)(reproduce)
    app(prog_name="python -m experiments")


def option(text: str, **settings: Any) -> Any:
    """An option that changes nothing unless given."""
    return typer.Option(help=text, show_default=False, **settings)


def reproduce(
    experiment: Annotated[str, typer.Argument(metavar="penalty|pca|ica|cnn|all|seconds|report")],
    scale: Annotated[str, typer.Option(help="smoke, laptop, nights or paper: sizes and budgets.")] = "laptop",
    output: Annotated[Path | None, option("Folder of records, cache and report; default output/SCALE.")] = None,
    p: Annotated[str | None, option("PCA: numbers of columns, e.g. 100,200.")] = None,
    model: Annotated[str | None, option("PCA: data of the text or of the published runs: text, published.")] = None,
    data: Annotated[Path | None, option("CNN: CIFAR-10, a folder or archive in either original format.")] = None,
    eeg: Annotated[Path | None, option("ICA: an npz file with eeg_uV and eog_uV.")] = None,
    network: Annotated[str | None, option("CNN: resnet18, vgg16, or both with a comma.")] = None,
    device: Annotated[str | None, option("CNN: where to train, e.g. cuda.")] = None,
    precision: Annotated[str | None, option("CNN: of the convolutions: float32 or bfloat16.")] = None,
    compiled: Annotated[bool | None, typer.Option("--compile", help="CNN: train with torch.compile.")] = None,
    width: Annotated[int | None, option("CNN: channels of the first layer; 64 in the paper.")] = None,
    methods: Annotated[str | None, option("Only these methods, e.g. landing,riemannian-qr.")] = None,
    epochs: Annotated[float | None, option("Passes over the data of a run.")] = None,
    milestones: Annotated[str | None, option("Epochs at which the step size is divided by ten, e.g. 30,50.")] = None,
    seeds: Annotated[int | None, option("Number of seeds.", min=1)] = None,
    grid: Annotated[str | None, option("Step sizes to search, e.g. 0.01,0.1,1.")] = None,
    search_epochs: Annotated[float | None, option("Epochs of the search for step sizes.")] = None,
    search_seconds: Annotated[float | None, option("At most so many seconds per run of the search.")] = None,
    search_images: Annotated[int | None, option("CNN: at most so many training images in the search.", min=1)] = None,
    max_seconds: Annotated[float | None, option("At most so many seconds per run, evaluation not counted.")] = None,
    threads: Annotated[int | None, option("Threads of torch.", min=1)] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time, by joblib; times suffer.")] = 1,
    parallel_config: Annotated[Path | None, option("Benchopt's file for Dask or SLURM.")] = None,
    go_on: Annotated[bool, typer.Option("--continue", help="Keep finished runs of which OUTPUT has records.")] = False,
) -> None:
    """Run the paper's experiments and write a report.

    Records go to OUTPUT/records, one file per study, the report to OUTPUT/report.html. A run that was stopped continues
    where it was when the same command is given again. `seconds` measures what an epoch of the networks takes, which
    needs a machine that does nothing else; `report` only draws anew what the folder holds.
    """
    try:
        given = {
            "p": whole_numbers("--p", p),
            "model": words("--model", model),
            "data": None if data is None else str(data.resolve()),
            "eeg": None if eeg is None else str(eeg.resolve()),
            "network": words("--network", network),
            "width": width,
            "device": device,
            "precision": precision,
            "compiled": compiled,
            "methods": words("--methods", methods),
            "epochs": positive("--epochs", epochs),
            "milestones": numbers("--milestones", milestones, may_be_none=True),
            "seeds": seeds,
            "grid": numbers("--grid", grid),
            "search_epochs": positive("--search-epochs", search_epochs),
            "search_images": search_images,
            "search_seconds": positive("--search-seconds", search_seconds),
            "max_seconds": positive("--max-seconds", max_seconds),
        }
        if parallel_config is not None and not parallel_config.is_file():
            raise ValueError(f"--parallel-config: there is no file {parallel_config}")
        from experiments.execute import Setup, run_experiments

        if experiment not in NAMES:
            raise ValueError(f"the experiment must be one of {', '.join(NAMES)}; got {experiment!r}")
        setup = Setup(
            experiments=experiments_of(experiment),
            scale=scale,
            output=output or Path("output") / scale,
            given={name: value for name, value in given.items() if value is not None},
            threads=threads,
            jobs=jobs,
            parallel_config=parallel_config,
            seconds=experiment == "seconds",
            go_on=go_on,
        )
        failures = run_experiments(setup)
    except ValueError as error:
        typer.echo(f"experiments: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("experiments: stopped. Finished runs are kept, and the same command goes on from there", err=True)
        raise typer.Exit(130) from None
    if failures:
        raise typer.Exit(1)


def experiments_of(name: str) -> tuple[str, ...]:
    """The experiments that a name on the command line means."""
    return {"all": EXPERIMENTS, "seconds": ("cnn",), "report": ()}.get(name, (name,))


def split(text: str) -> list[str]:
    """What is between commas, without blanks."""
    return [word.strip() for word in text.split(",") if word.strip()]


def words(name: str, text: str | None) -> tuple[str, ...] | None:
    """Words between commas, at least one."""
    if text is not None and not split(text):
        raise ValueError(f"{name} must name something; got {text!r}")
    return None if text is None else tuple(split(text))


def positive(name: str, value: float | None) -> float | None:
    """A finite number > 0."""
    if value is not None and not 0 < value < math.inf:
        raise ValueError(f"{name} must be a finite number > 0; got {value}")
    return value


def numbers(name: str, text: str | None, *, may_be_none: bool = False) -> tuple[float, ...] | None:
    """Finite numbers > 0 between commas, at least one unless there may be none."""
    if text is None:
        return None
    try:
        found = tuple(float(word) for word in split(text))
    except ValueError:
        found = (math.nan,)
    if not all(0 < value < math.inf for value in found) or not (found or may_be_none):
        raise ValueError(f"{name} must be finite numbers > 0 with commas between; got {text!r}")
    return found


def whole_numbers(name: str, text: str | None) -> tuple[int, ...] | None:
    """Whole numbers >= 1 between commas, at least one."""
    if text is None:
        return None
    found = [int(word) if word.isdecimal() else 0 for word in split(text)]
    if not found or min(found) < 1:
        raise ValueError(f"{name} must be whole numbers >= 1 with commas between; got {text!r}")
    return tuple(found)
