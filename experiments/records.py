"""Records: one row per evaluated iterate, in one parquet file per study; what reads and merges them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.epoch_seconds import place, with_measured_seconds
from experiments.study import Study
from glideslope.files import write_whole

SEARCH, RUN = "search", "run"


def tidy(results: Any, study: Study, phase: str) -> Any:
    """Benchopt's results as records: method, step size, seed, then what the objective measured."""
    measured = [name for name in results.columns if name.startswith("objective_") and name != "objective_name"]
    steps = results["p_solver_step_size"] if "p_solver_step_size" in results.columns else float("nan")
    first = {
        "experiment": study.experiment,
        "study": study.name,
        "title": study.title,
        "phase": phase,
        "method": results["solver_name"].str.partition("[")[0],
        "step_size": steps,
        "seed": results["p_obj_seed"],
        "settings": study.settings(phase),
        **study.facts,
    }
    records = pd.DataFrame(first, index=results.index)
    for name in measured:
        records[name.removeprefix("objective_")] = results[name]
    records["criterion"], records["criterion_name"] = records[study.criterion], study.criterion_name
    keys = ["method", "step_size", "seed"]
    return records.sort_values([*keys, "epoch"], kind="stable").reset_index(drop=True)


def finished(records: Any, study: Study) -> Any:
    """The records of those runs, search included, that a study needs not make again: its settings, run to the end."""
    records = with_settings(records)
    parts = [own for phase in (SEARCH, RUN) for own in finished_in(records, study, phase)]
    return pd.concat(parts, ignore_index=True) if parts else records.iloc[:0]


def refuse_other_settings(records: Any, study: Study) -> None:
    """Raise a ValueError if runs of the study would replace records of other settings, searches included."""
    own = with_settings(records[records["method"].isin(study.methods)])
    for (phase, method, recorded), _ in own.groupby(["phase", "method", "settings"]):
        if recorded != study.settings(phase):
            before, now = json.loads(recorded or "{}"), json.loads(study.settings(phase))
            names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
            changes = ", ".join(f"{name} {before.get(name)} there and {now.get(name)} here" for name in names)
            raise ValueError(
                f"--continue would replace records of {method} in {study.name}, whose {phase} has other settings: "
                f"{changes}. Give the settings of the records, or another --output"
            )


def with_settings(records: Any) -> Any:
    """Records with the column of settings, empty in those written before there was one."""
    return records if "settings" in records else records.assign(settings="")


def finished_in(records: Any, study: Study, phase: str) -> list[Any]:
    """One table per run."""
    own = records[
        (records["phase"] == phase)
        & (records["settings"] == study.settings(phase))
        & records["method"].isin(study.methods)
    ]
    budget = study.parameters_in(phase)
    seconds = math.inf if budget["max_seconds"] is None else budget["max_seconds"]
    found = []
    for (method, *_), run in own.groupby(["method", "step_size", "seed"], dropna=False):
        end = run.sort_values("epoch", kind="stable").iloc[-1]
        used = end["seconds"] >= seconds or method in study.in_the_time_of_others
        if end["epoch"] >= budget["epochs"] or end["status"] == "diverged" or (end["status"] == "out of time" and used):
            found.append(run)
    return found


def merge(records: Any, path: Path) -> None:
    """Write records, keeping those that the file already has of other methods."""
    if path.exists() and "method" in records:
        before = pd.read_parquet(path)
        others = before[~before["method"].isin(set(records["method"]))]
        records = pd.concat([others, records], ignore_index=True) if len(others) else records
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, [records.to_parquet(index=False, compression="zstd")])


def read(folder: Path) -> dict[str, Any]:
    """Records of every study in a folder, by name; with the measured seconds of an epoch where there are any."""
    return {
        path.stem: with_measured_seconds(pd.read_parquet(path), place(folder.parent, path.stem))
        for path in sorted(folder.glob("*.parquet"))
    }


def runs(records: Any) -> Any:
    """The runs, without the search for step sizes."""
    return records[records["phase"] == RUN]


def last(records: Any) -> Any:
    """The last record of every run, one row per method and seed."""
    return runs(records).sort_values("epoch", kind="stable").groupby(["method", "seed"], as_index=False).tail(1)


def curve(records: Any, method: str, column: str) -> Any:
    """Median, lowest and highest of a column over seeds by number of the record, with the median epoch and seconds.

    Records that fewer than half of the seeds reached are left out.
    """
    own = runs(records)
    own = own[own["method"] == method].sort_values(["seed", "epoch"], kind="stable")
    n_seeds = own["seed"].nunique()
    grouped = own.groupby(own.groupby("seed").cumcount())
    table = pd.DataFrame(
        {
            "epoch": grouped["epoch"].median(),
            "seconds": grouped["seconds"].median(),
            "median": grouped[column].median(),
            "low": grouped[column].min(),
            "high": grouped[column].max(),
            "count": grouped["seed"].nunique(),
        }
    )
    return table[2 * table["count"] >= n_seeds].reset_index(drop=True)


def seconds_per_epoch(records: Any, method: str) -> float:
    """Median over seeds of a run's seconds divided by its epochs."""
    end = last(records)
    end = end[(end["method"] == method) & (end["epoch"] > 0)]
    return float((end["seconds"] / end["epoch"]).median())


def seconds_to_reach(records: Any, method: str, column: str, target: float, *, above: bool = False) -> float:
    """Median over seeds of the first time at which a column is at most (or at least) the target; inf where never."""
    own = runs(records)
    times = []
    for _, run in own[own["method"] == method].groupby("seed"):
        reached = run[run[column] >= target] if above else run[run[column] <= target]
        times.append(float(reached["seconds"].min()) if len(reached) else float("inf"))
    return float(pd.Series(times).median()) if times else float("inf")
