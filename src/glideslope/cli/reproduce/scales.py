"""The scales: one table of sizes and budgets per experiment. Nothing else differs between smoke, laptop and paper."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from glideslope.cli.reproduce.study import Study

HALF_DECADES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
PCA_METHODS = (
    "landing",
    "landing-10",
    "landing-euclidean",
    "landing-two-step",
    "riemannian-qr",
    "riemannian-polar",
    "riemannian-cayley",
    "riemannian-exponential",
    "geoopt-qr",
    "penalty-100",
    "penalty-10000",
)


@dataclass(frozen=True)
class Penalty:
    """Figure 2."""

    weights: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)

    def studies(self) -> list[Study]:
        """None: no method runs."""
        return []


@dataclass(frozen=True)
class Pca:
    """Section 4.1 and figure 6."""

    n_samples: int = 15_000
    n: int = 5000
    p: tuple[int, ...] = (100, 200, 500, 1000)
    model: tuple[str, ...] = ("text",)
    batch_size: int = 128
    epochs: float = 60
    milestones: tuple[float, ...] = (30, 50)
    records_per_epoch: int = 1
    seeds: int = 3
    methods: tuple[str, ...] = PCA_METHODS
    grid: tuple[float, ...] = HALF_DECADES
    search_epochs: float = 1
    max_seconds: float | None = None
    search_seconds: float | None = 60

    def studies(self) -> list[Study]:
        """One per model and p."""
        return [self.study(model, p) for model in self.model for p in self.p]

    def study(self, model: str, p: int) -> Study:
        """All methods on one set of data."""
        return Study(
            experiment="pca",
            name=f"pca-{model}-n{self.n}-p{p}",
            title=f"Online PCA, n = {self.n}, p = {p}, N = {self.n_samples}, data of the "
            + ("text" if model == "text" else "published runs"),
            benchmark="online_pca",
            objective="online-pca",
            dataset=model,
            dataset_parameters={"n_samples": self.n_samples, "n": self.n, "p": p, "seed": 0},
            parameters={
                "batch_size": self.batch_size,
                "epochs": self.epochs,
                "milestones": tuple(self.milestones),
                "records_per_epoch": self.records_per_epoch,
                "max_seconds": self.max_seconds,
            },
            search={"epochs": self.search_epochs, "milestones": (), "max_seconds": self.search_seconds},
            methods=self.methods,
            grid=self.grid,
            seeds=tuple(range(self.seeds)),
            n_records=math.ceil(self.epochs * self.records_per_epoch) + 3,
            facts={"n": self.n, "p": p, "first_milestone": min(self.milestones, default=math.inf)},
        )


@dataclass(frozen=True)
class Scale:
    """What every experiment is at one scale."""

    penalty: Penalty
    pca: Pca

    def with_options(self, experiments: tuple[str, ...], given: dict[str, Any]) -> Scale:
        """The scale with options of the command line in the settings that have them."""
        changed = {}
        known: set[str] = set()
        for name in experiments:
            setting = getattr(self, name)
            fitting = {option: value for option, value in given.items() if hasattr(setting, option)}
            known |= set(fitting)
            changed[name] = replace(setting, **fitting)
        stray = sorted(set(given) - known)
        if stray:
            flags = ", ".join("--" + name.replace("_", "-") for name in stray)
            raise ValueError(f"{flags} has no meaning for {' and '.join(experiments)}: leave it out")
        return replace(self, **changed)


SCALES: dict[str, Scale] = {
    "smoke": Scale(
        penalty=Penalty(weights=(30.0, 100.0, 300.0, 1000.0)),
        pca=Pca(
            n_samples=300,
            n=60,
            p=(10,),
            batch_size=16,
            epochs=6,
            milestones=(3, 5),
            seeds=2,
            methods=("landing", "riemannian-qr", "penalty-100", "penalty-10000", "geoopt-qr"),
            grid=(1e-4, 1e-2, 1e-1),
        ),
    ),
    "laptop": Scale(
        penalty=Penalty(),
        pca=Pca(
            n_samples=3000,
            n=1000,
            p=(50, 200),
            batch_size=32,
            epochs=12,
            milestones=(6, 10),
            records_per_epoch=2,
            seeds=2,
            search_seconds=2,
        ),
    ),
    "paper": Scale(penalty=Penalty(weights=(1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4)), pca=Pca()),
}
