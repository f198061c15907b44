"""Records made visible: figures and pages. Reads numbers only; imports no torch."""
