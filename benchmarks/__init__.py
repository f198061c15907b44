"""Measurements of speed and of the monitor. Not part of the wheel."""
