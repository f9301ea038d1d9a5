"""What a rank sends in a step, as the page on scaling says it: bytes as a function of n, p and the number of ranks."""

import math

FINGERPRINT, NORM = 4 * 32, 8


def landing_sums(p, size=4):
    """Bytes of the tensors that are summed in a step of LandingSGD."""
    return FINGERPRINT + 2 * p * p * size + NORM


def sent_by_all_reduce(total, ranks):
    """A ring: every rank sends each part twice, but for its own."""
    return 2 * (ranks - 1) / ranks * total


def landing(n, p, ranks, size=4):
    return sent_by_all_reduce(landing_sums(p, size), ranks)


def gathering(n, p, ranks, size=4):
    """X and G, so that every rank can take the step of the whole."""
    return 2 * (ranks - 1) / ranks * n * p * size


def tall_skinny_qr(n, p, ranks, size=4):
    """X^H G for the tangent part; then triangles up a tree, and p x p factors down."""
    rounds = math.ceil(math.log2(ranks))
    return sent_by_all_reduce(p * p * size, ranks) + rounds * (p * (p + 1) // 2 + p * p) * size
