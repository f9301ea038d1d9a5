"""What the files of this benchmark share; Benchopt finds it by this name."""
