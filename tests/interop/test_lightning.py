"""PyTorch Lightning: configure_optimizers with bare parameters, clipping, 16-bit precision, resuming."""

import pytest
import torch
from interop.networks_and_data import assert_constrained, assert_equal, batch, network
from interop.packages import needs

import glideslope as gs

NAMES = ("net.0.weight", "net.2.weight")


def module():
    lightning = needs("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def training_step(self, samples, index):
            inputs, targets = samples
            return (self.net(inputs) - targets).square().mean()

        def configure_optimizers(self):
            optimizer = gs.LandingAdam(self.parameters(), lr=1e-2)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]

    return Module()


def fit(model, epochs, ckpt_path=None, **options):
    lightning = needs("lightning")
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    data = torch.utils.data.TensorDataset(*batch(0, 48))
    trainer = lightning.Trainer(max_epochs=epochs, **{"enable_checkpointing": False, **quiet, **options})
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=8), ckpt_path=ckpt_path)
    return trainer


@pytest.mark.parametrize("options", [{}, {"gradient_clip_val": 0.01}], ids=["plain", "clipped"])
def test_weights_stay_orthonormal(options):
    model = module()
    start = model.net[0].weight.detach().clone()
    fit(model, 2, **options)
    assert_constrained(model, NAMES)
    assert (model.net[0].weight - start).abs().max() > 1e-3


def test_clipped_gradients_reach_the_step():
    models = [module(), module()]
    for model, clip in zip(models, (None, 1e-9), strict=True):
        model.configure_optimizers = lambda model=model: gs.LandingSGD(model.parameters(), lr=0.1)
        fit(model, 1, gradient_clip_val=clip)
    moved, still = ((model.net[0].weight - network()[0].weight).norm() for model in models)
    assert moved > 1e-3
    assert still < 1e-6


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "16-true"])
def test_sixteen_bits_keep_weights_orthonormal(precision):
    model = module()
    fit(model, 2, precision=precision)
    assert model.net[0].weight.dtype == (
        {"bf16-true": torch.bfloat16, "16-true": torch.float16}.get(precision, torch.float32)
    )
    assert gs.orthogonality(model).largest_distance < 0.1
    (optimizer,) = model.trainer.optimizers
    assert max(row.distance[0] for row in optimizer.diagnostics()) < 0.1


def test_a_resumed_fit_ends_at_the_same_bits():
    model, resumed = module(), module()
    fit(model, 4)
    half = module()
    fit(half, 2).save_checkpoint("half.ckpt")
    fit(resumed, 4, ckpt_path="half.ckpt")
    assert_equal(model, resumed)
