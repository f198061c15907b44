"""From a trained policy to a robot: export, server, model card, monitor."""
