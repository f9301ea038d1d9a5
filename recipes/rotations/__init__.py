"""Learned rotations for quantised language models: fold, learn, export."""
