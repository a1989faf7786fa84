"""What every system shares; knows no system."""
