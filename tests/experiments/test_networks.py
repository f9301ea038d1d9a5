"""The networks of section 4.3: their kernels as matrices, augmentation, schedule, and what a seed decides."""

import pytest
import torch
from benchmark_modules import load
from torch import nn

import glideslope as gs

networks, images, training, evaluation = load("orthogonal_cnn", "networks", "images", "training", "evaluation")


@pytest.mark.parametrize(("name", "convolutions"), [("vgg16", 13), ("resnet18", 20)])
@pytest.mark.parametrize(("channels", "side"), [(3, 32), (1, 8)])
def test_the_networks_take_small_images_and_have_the_papers_convolutions(name, convolutions, channels, side):
    model = networks.build(name, channels, side, 8, 0)
    assert len(list(networks.kernels(model))) == convolutions
    assert model(torch.randn(2, channels, side, side)).shape == (2, 10)


def test_at_the_papers_width_the_networks_have_the_papers_sizes():
    widths = [weight.shape[0] for weight in networks.kernels(networks.build("vgg16", 3, 32, 64, 0))]
    assert widths == [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
    count = sum(param.numel() for param in networks.build("resnet18", 3, 32, 64, 0).parameters())
    assert count == 11_173_962  # of ResNet18 for CIFAR-10 with a 3 x 3 stem


@pytest.mark.parametrize("shape", [(64, 3, 3, 3), (16, 8, 3, 3), (16, 8, 1, 1)])
def test_kernels_are_reshaped_to_out_times_in_and_transposed_if_wide(shape):
    weight = torch.randn(shape)
    matrix = networks.tall(weight)
    assert matrix.shape[0] >= matrix.shape[1]
    assert matrix.shape in {(shape[0], weight[0].numel()), (weight[0].numel(), shape[0])}
    flat = weight.reshape(shape[0], -1)
    torch.testing.assert_close(matrix, flat if flat.shape[0] >= flat.shape[1] else flat.T)


def largest_distance(model):
    return max(gs.formulas.distance(networks.tall(weight.detach())).item() for weight in networks.kernels(model))


def test_the_library_constrains_the_same_matrices():
    model = networks.build("resnet18", 3, 32, 8, 0)
    names = gs.orthogonalize_(model, nn.Conv2d)
    assert len(names) == 20
    assert largest_distance(model) < 1e-5


def test_a_network_depends_on_its_seed_alone_and_leaves_the_global_random_state():
    state = torch.random.get_rng_state()
    first, second, other = (networks.build("resnet18", 1, 8, 8, seed) for seed in (1, 1, 2))
    assert torch.equal(state, torch.random.get_rng_state())
    pairs = list(zip(first.parameters(), second.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


@pytest.mark.parametrize(("name", "width", "words"), [("alexnet", 8, "vgg16, resnet18"), ("vgg16", 6, "multiple of 8")])
def test_a_network_that_cannot_be_built_is_an_error(name, width, words):
    with pytest.raises(ValueError, match=words):
        networks.build(name, 3, 32, width, 0)


def numbered(count, side, *, mirror, padding=2):
    pixels = torch.arange(count * side * side, dtype=torch.float32).view(count, 1, side, side) + 1
    labels = torch.arange(count)
    return images.Images(pixels, labels, pixels, labels, padding, mirror, "")


def crops(image, padding):
    padded = torch.nn.functional.pad(image, (padding,) * 4)
    side = image.shape[-1]
    offsets = range(2 * padding + 1)
    return [padded[:, i : i + side, j : j + side] for i in offsets for j in offsets]


@pytest.mark.parametrize("mirror", [False, True])
def test_augmented_images_are_crops_of_the_padded_ones_mirrored_or_not(mirror):
    data = numbered(40, 5, mirror=mirror)
    draws = data.draw(torch.Generator().manual_seed(0))
    batch = data.augmented(torch.arange(40), draws.shift, draws.mirrored)
    seen = set()
    for image, found in zip(data.train, batch, strict=True):
        plain = [torch.equal(found, crop) for crop in crops(image, 2)]
        flipped = [torch.equal(found, crop.flip(-1)) for crop in crops(image, 2)]
        assert any(plain) or (mirror and any(flipped))
        seen.add((plain.index(True), False) if any(plain) else (flipped.index(True), True))
    assert len({place for place, _ in seen}) > 10
    assert {way for _, way in seen} == ({False, True} if mirror else {False})


def test_an_epoch_sees_every_image_once_with_its_label():
    data = numbered(25, 3, mirror=False, padding=0)
    draws = data.draw(torch.Generator().manual_seed(0))
    batches = list(data.batches(draws, 10))
    assert [len(labels) for _, labels in batches] == [10, 10, 5]
    seen = torch.cat([labels for _, labels in batches])
    assert sorted(seen.tolist()) == list(range(25))
    assert torch.equal(torch.cat([batch for batch, _ in batches]), data.train[seen])


def test_the_search_can_use_the_first_training_images_alone():
    held = numbered(25, 3, mirror=False).held_out().first(4)
    assert held.train_labels.tolist() == [1, 2, 3, 4]
    assert held.test_labels.tolist() == [0, 10, 20]


def test_every_tenth_training_image_is_held_out_for_the_search():
    held = numbered(25, 3, mirror=False).held_out()
    assert held.test_labels.tolist() == [0, 10, 20]
    assert sorted([*held.train_labels.tolist(), *held.test_labels.tolist()]) == list(range(25))


def test_the_step_size_is_divided_by_ten_at_every_milestone():
    task = training.Task(None, "vgg16", 64, 128, 150, (50, 100), 5e-4, None, 0)
    steps = [task.step_size_at(0.1, epoch) for epoch in (0, 49, 50, 99, 100, 149)]
    assert steps == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def test_projection_for_evaluation_makes_the_kernels_orthonormal_and_leaves_the_model():
    model = networks.build("resnet18", 1, 8, 8, 0)
    before = [weight.clone() for weight in networks.kernels(model)]
    projected = evaluation.projected(model)
    assert largest_distance(projected) < 1e-5
    assert all(torch.equal(old, new) for old, new in zip(before, networks.kernels(model), strict=True))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_precision_is_that_of_the_convolutions_and_leaves_parameters_and_gradients_in_float32(precision):
    data = images.digits(32)
    model = training.Task(data, "resnet18", 8, 32, 1, (), 0.0, None, 0).model().train()
    computed = set()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda module, given, output: computed.add(output.dtype))
    optimizer = gs.LandingSGD(gs.param_groups(model), lr=0.1)
    loss = training.train_step(model, optimizer, data.train, data.train_labels, precision)
    assert computed == {getattr(torch, precision)}
    params = list(model.parameters())
    assert {loss.dtype, *(p.dtype for p in params), *(p.grad.dtype for p in params)} == {torch.float32}
