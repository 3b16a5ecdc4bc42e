"""Register the handler of every client message by importing its module."""

from files_app import handlers as files
from sessions_app.handlers import agent, connection, push, session

MODULES = (agent, connection, files, push, session)
