"""Register the handler of every client message by importing its module."""

from files_app import handlers as files
from sessions_app.handlers import connection, push, session

MODULES = (connection, files, push, session)
