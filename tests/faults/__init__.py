"""What happens when things break, and what must hold afterwards."""
