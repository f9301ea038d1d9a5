"""Compares Muon with landing with its relatives on a small transformer."""
