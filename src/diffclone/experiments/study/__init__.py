"""The study of equal tuning: the same number of tries for every method, success along training, and controls.

Importing this package does not import torch.
"""
