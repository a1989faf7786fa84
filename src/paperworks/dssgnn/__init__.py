"""Node classification with random graph signals: calibrated probabilities, node uncertainty and an out-of-distribution score."""
