"""How fast the bridge is, measured: `make bench`, or `python -m tests.performance [part …]`. Not
part of the tests; docs/performance.md says more.
"""
