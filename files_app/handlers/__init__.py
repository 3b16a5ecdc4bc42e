"""Handle client messages about files and git, one module a topic."""
