"""Attack the bridge from outside, one file for each number of docs/security.md."""
