"""Measures what the defaults of LandingSGD and LandingAdam should be: several kinds of training, options and rates."""
