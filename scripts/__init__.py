"""Programs that make files bundled with the package. Not part of the wheel."""
