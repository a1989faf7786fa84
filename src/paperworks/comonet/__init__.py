"""Neural networks with a guaranteed shape per variable: monotone, convex, concave and combinations."""
