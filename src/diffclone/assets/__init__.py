"""Bundled files: demonstrations, experts and policies, each with its provenance and its checksum in CHECKSUMS."""
