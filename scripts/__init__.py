"""Programs that make what the package bundles. Not part of the wheel."""
