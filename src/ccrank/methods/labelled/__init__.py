"""A few labels: a Gaussian process over items, with the label-free score as prior mean and states as kernel."""
