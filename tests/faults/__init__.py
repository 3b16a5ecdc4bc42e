"""What happens when things break: processes that are killed at any instant, and what must hold
afterwards.
"""
