"""Serve HTTP and WebSockets by daphne, with the bounds it lacks (D9, D19, D30).

One module for each layer of a connection.
"""
