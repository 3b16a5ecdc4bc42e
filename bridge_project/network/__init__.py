"""Addresses, certificates and what is known of a connection."""
