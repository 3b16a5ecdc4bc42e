"""The handlers of this room's messages, one module a topic; ``sessions_app.handlers`` loads
them.
"""
