"""Time training, rollouts and inference on this machine, beside other ways to do the same."""
