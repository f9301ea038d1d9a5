"""What one step costs, of ours, of torch's and of the peers that are installed: `python -m benchmarks.steps`."""
