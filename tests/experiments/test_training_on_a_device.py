"""The training loop of the networks on torch's device "meta", whose tensors have no values: no step reads one.

FakeTensorMode with CUDA tensors would be the same test, but its backward pass crashes on builds of torch without CUDA.
"""

import math

import pytest
import torch
from benchmark_modules import BENCHMARKS, load

from experiments.settings import CNN_METHODS

images, training = load("orthogonal_cnn", "images", "training")


@pytest.fixture(scope="module")
def solvers():
    from benchopt.benchmark import Benchmark

    load("orthogonal_cnn", "training")
    return {cls.name: cls for cls in Benchmark(BENCHMARKS / "orthogonal_cnn").get_solvers()}


def steps_without_values(optimizer_of, network="resnet18"):
    """Three steps at smoke scale; whatever reads a value, by .item(), a branch or a copy to the host, raises."""
    data = images.digits(40)
    model = training.Task(data, network, 8, 16, 1, (), 0.0, None, 0).model().to("meta")
    data = data.to("meta")
    draws = data.draw(torch.Generator().manual_seed(0))
    return training.train_steps(model, optimizer_of(model), data, draws, 16, math.inf)


@pytest.mark.parametrize("network", ["vgg16", "resnet18"])
@pytest.mark.parametrize("method", [name for name in CNN_METHODS if name != "trivialization"])
def test_no_step_waits_for_the_host(solvers, method, network):
    solver = solvers[method].get_instance(step_size=0.1)
    total, seen, status = steps_without_values(lambda model: solver.optimizer(model, 0.1, 5e-4), network)
    assert total.device.type == "meta"
    assert (seen, status) == (40, "running")


def test_a_step_that_waits_is_noticed():
    class Waiting(torch.optim.SGD):
        def step(self):
            super().step()
            self.param_groups[0]["params"][0].sum().item()

    with pytest.raises(RuntimeError, match="meta"):
        steps_without_values(lambda model: Waiting(model.parameters(), lr=0.1))


def test_images_labels_and_draws_are_on_the_device_of_the_task():
    data = images.digits(40).to("meta")
    draws = data.draw(torch.Generator().manual_seed(0))
    batch, labels = next(data.batches(draws, 16))
    assert {part.device.type for part in (*data[:4], *draws, batch, labels)} == {"meta"}
