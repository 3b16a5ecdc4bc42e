"""The server's edge: daphne's protocols with what it leaves open (D9, D19, D30), one module for
each layer of a connection.
"""
