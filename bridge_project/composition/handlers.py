"""Register the handler of every client message by importing its module."""

from files_app.handlers import files, git
from sessions_app.handlers import agent, connection, push, session

MODULES = (agent, connection, files, git, push, session)
