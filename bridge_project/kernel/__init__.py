"""Provide settings, limits, errors, the database, logging and paths to all."""
