"""The settings of each experiment, with the paper's as defaults, and the studies that they mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.study import Study

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
ICA_METHODS = (
    "landing-gd",
    "landing-sgd",
    "landing-saga",
    "landing-svrg",
    "riemannian-gd-qr",
    "riemannian-gd-exponential",
    "riemannian-sgd-qr",
    "riemannian-sgd-exponential",
    "picard-o",
    "fastica",
)
CNN_METHODS = (
    "landing-defaults",
    "riemannian-qr",
    "landing",
    "landing-two-step",
    "penalty-1",
    "penalty-1000",
    "unconstrained",
    "trivialization",
)
MODELS = ("text", "published")
NETWORKS = {"vgg16": "VGG16", "resnet18": "ResNet18"}
PRECISIONS = ("float32", "bfloat16")
FETCH = (
    "fetch cifar-10-binary.tar.gz or cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and give "
    "the archive, or the folder it unpacks to, by --data"
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
    search_epochs: float = 6
    max_seconds: float | None = None
    search_seconds: float | None = None

    def studies(self) -> list[Study]:
        """One per model and p."""
        refuse_unknown_models(self.model)
        if max(self.p) > self.n:
            raise ValueError(f"--p must be at most n = {self.n}; got {max(self.p)}")
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
            search={
                "epochs": self.search_epochs,
                "milestones": shrunk(self.milestones, self.search_epochs / self.epochs),
                "max_seconds": self.search_seconds,
            },
            methods=self.methods,
            grid=self.grid,
            seeds=tuple(range(self.seeds)),
            n_records=math.ceil(self.epochs * self.records_per_epoch) + 3,
            facts={"n": self.n, "p": p, "first_milestone": min(self.milestones, default=math.inf)},
        )


@dataclass(frozen=True)
class Ica:
    """Section 4.2; every seed draws data of its own."""

    n_samples: int = 10_000
    n: int = 10
    model: tuple[str, ...] = ("text",)
    eeg: str = ""
    batch_size: int = 100
    epochs: float = 200
    seeds: int = 10
    methods: tuple[str, ...] = ICA_METHODS
    grid: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    search_epochs: float = 50
    max_seconds: float | None = None
    search_seconds: float | None = None

    def studies(self) -> list[Study]:
        """One per model, and the EEG."""
        refuse_unknown_models(self.model)
        shape = {"n_samples": self.n_samples, "n": self.n}
        size = f"n = {self.n}, N = {self.n_samples}"
        made = [
            self.study(model, shape, f"ICA, {size}, data of the " + ("text" if model == "text" else "published runs"))
            for model in self.model
        ]
        return [*made, self.study("eeg", {"path": self.eeg, "n": 15}, "ICA of an EEG, 15 components, 1 to 40 Hz")]

    def study(self, dataset: str, dataset_parameters: dict[str, Any], title: str) -> Study:
        """All methods on one model of data."""
        return Study(
            experiment="ica",
            name=f"ica-{dataset}",
            title=title,
            benchmark="ica",
            objective="ica",
            dataset=dataset,
            dataset_parameters=dataset_parameters,
            parameters={"batch_size": self.batch_size, "epochs": self.epochs, "max_seconds": self.max_seconds},
            search={"epochs": self.search_epochs, "max_seconds": self.search_seconds},
            methods=self.methods,
            grid=self.grid,
            seeds=tuple(range(self.seeds)),
            n_records=200,
            without_step_size=tuple(name for name in self.methods if name in ("picard-o", "fastica")),
            facts={"n": dataset_parameters["n"], "n_samples": dataset_parameters.get("n_samples", 0)},
        )


@dataclass(frozen=True)
class Cnn:
    """Section 4.3 and figure 7; without data of its own the digits of scikit-learn."""

    data: str | None = None
    needs_data: bool = False
    limit: int | None = None
    network: tuple[str, ...] = ("vgg16", "resnet18")
    width: int = 64
    batch_size: int = 128
    epochs: float = 150
    milestones: tuple[float, ...] = (50, 100)
    weight_decay: float = 5e-4
    seeds: int = 5
    methods: tuple[str, ...] = CNN_METHODS
    grid: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
    search_epochs: float = 9
    search_images: int | None = None
    device: str = "cpu"
    precision: str = "float32"
    """Of the convolutions, forward and backward; parameters and steps are float32."""
    compiled: bool = False
    """Whether networks are trained by torch.compile."""
    long: bool = False
    max_seconds: float | None = None
    search_seconds: float | None = None

    def studies(self) -> list[Study]:
        """One per network."""
        if self.data is None and self.needs_data:
            raise ValueError(f"the CNN at this scale needs CIFAR-10, or leave it out: {FETCH}")
        if self.data is not None and not Path(self.data).exists():
            raise ValueError(f"there is nothing at {self.data}: {FETCH}")
        return [self.study(network) for network in self.network]

    def study(self, network: str) -> Study:
        """All methods on one network."""
        if network not in NETWORKS:
            raise ValueError(f"--network must be of {', '.join(NETWORKS)}; got {network!r}")
        if self.width < 8 or self.width % 8:
            raise ValueError(f"--width must be a multiple of 8; got {self.width}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"--precision must be one of {', '.join(PRECISIONS)}; got {self.precision!r}")
        other = "" if self.precision == "float32" else self.precision
        dataset, images = ("digits", "digits") if self.data is None else ("cifar10", "CIFAR-10")
        place = {} if self.data is None else {"path": self.data}
        slow = tuple(name for name in self.methods if self.long and name == "trivialization")
        return Study(
            experiment="cnn",
            name=f"cnn-{dataset}-{network}-width{self.width}{other and '-' + other}",
            title=f"{NETWORKS[network]} of width {self.width} on {images}{other and ', in ' + other}",
            benchmark="orthogonal_cnn",
            objective="orthogonal-cnn",
            dataset=dataset,
            dataset_parameters={**place, "limit": self.limit},
            parameters={
                "network": network,
                "width": self.width,
                "batch_size": self.batch_size,
                "epochs": self.epochs,
                "milestones": tuple(self.milestones),
                "weight_decay": self.weight_decay,
                "max_seconds": self.max_seconds,
                "held_out": False,
                "n_train": None,
                "device": self.device,
                "precision": self.precision,
                "compiled": self.compiled,
            },
            search={
                "epochs": self.search_epochs,
                "milestones": shrunk(self.milestones, self.search_epochs / self.epochs),
                "max_seconds": self.search_seconds,
                "held_out": True,
                "n_train": self.search_images,
            },
            methods=self.methods,
            grid=self.grid,
            seeds=tuple(range(self.seeds)),
            n_records=math.ceil(self.epochs) + 3,
            criterion_name="error on held-out training images",
            facts={"width": self.width},
            long=self.long,
            in_the_time_of_others=slow,
            step_size_of=dict.fromkeys(slow, "riemannian-qr"),
        )


def refuse_unknown_models(models: tuple[str, ...]) -> None:
    """Raise a ValueError for data that cannot be drawn."""
    for model in models:
        if model not in MODELS:
            raise ValueError(f"--model must be of {', '.join(MODELS)}; got {model!r}")


def shrunk(milestones: tuple[float, ...], share: float) -> tuple[float, ...]:
    """The schedule of a run in the shorter time of a search."""
    return tuple(round(milestone * share, 3) for milestone in milestones)
