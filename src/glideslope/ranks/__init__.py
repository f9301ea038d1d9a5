"""torch.distributed in one place: DTensors, sums over ranks, ranks that must agree, columns of data on many ranks."""
