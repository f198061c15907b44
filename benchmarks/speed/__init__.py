"""How fast training, playing and acting are on this machine, beside other ways to do the same."""
