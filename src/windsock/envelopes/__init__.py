"""Envelopes: what one system wraps around another's event, one file each; pure functions, no network."""
