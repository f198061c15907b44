"""Bundled files: demonstrations, each with its provenance inside and its checksum in CHECKSUMS."""
