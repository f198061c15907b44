"""Settings for all tests: one thread a process, since several run side by side."""

import torch

torch.set_num_threads(1)
