"""Serve HTTP and WebSockets with daphne; add the limits it lacks (D9, D19, D30).

One module for each layer of a connection.
"""
