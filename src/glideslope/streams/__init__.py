"""Learning from batches of data: running moments, the leading subspace, independent components."""
