"""The scales: one table of sizes and budgets per experiment. Nothing else differs between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from experiments.settings import Cnn, Ica, Pca, Penalty


@dataclass(frozen=True)
class Scale:
    """What every experiment is at one scale."""

    penalty: Penalty
    pca: Pca
    ica: Ica
    cnn: Cnn

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
        ica=Ica(
            n_samples=1000,
            n=4,
            batch_size=50,
            epochs=20,
            seeds=2,
            methods=("landing-gd", "landing-sgd", "landing-saga", "riemannian-sgd-qr", "picard-o", "fastica"),
            grid=(0.1, 0.5),
            search_epochs=10,
        ),
        cnn=Cnn(
            limit=100,
            network=("resnet18",),
            width=8,
            epochs=2,
            milestones=(1,),
            seeds=2,
            methods=("landing", "riemannian-qr", "penalty-1", "trivialization"),
            grid=(0.03, 0.1),
            search_epochs=1,
            max_seconds=1.5,
            search_seconds=0.5,
        ),
    ),
    "laptop": Scale(
        penalty=Penalty(),
        pca=Pca(
            n_samples=1800,
            n=600,
            p=(40, 100),
            batch_size=32,
            epochs=10,
            milestones=(5, 8),
            seeds=2,
            grid=(1e-4, 1e-2, 1e-1, 3e-1, 1.0),
            search_epochs=5,
        ),
        ica=Ica(epochs=100, seeds=3, grid=(0.05, 0.1, 0.5, 1.0), search_epochs=20),
        cnn=Cnn(
            network=("resnet18",),
            width=8,
            epochs=9,
            milestones=(3, 6),
            seeds=2,
            grid=(1e-3, 1e-2, 1e-1, 3e-1, 1.0),
            search_epochs=2,
            max_seconds=8,
            search_seconds=2.5,
        ),
    ),
    "nights": Scale(
        penalty=Penalty(),
        pca=Pca(),
        ica=Ica(),
        cnn=Cnn(
            needs_data=True,
            width=16,
            epochs=12,
            milestones=(4, 8),
            seeds=3,
            search_epochs=3,
            search_images=5000,
            long=True,
        ),
    ),
    "paper": Scale(
        penalty=Penalty(weights=(1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4)),
        pca=Pca(),
        ica=Ica(),
        cnn=Cnn(needs_data=True, long=True),
    ),
}
