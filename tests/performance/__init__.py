"""How fast the bridge is: `make bench`; docs/performance.md says more."""
