"""A device in the terminal: the client side of the conversation, and how what arrives is shown
(D43).
"""
