"""A name server of the tests, for bridges that are started with it on their path."""
