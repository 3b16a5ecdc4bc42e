"""Create a user of the admin site, interactively or for a script: `make_admin`."""

import getpass
import os
import sys
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from bridge_project.kernel.config import conf
from bridge_project.kernel.own_commands import manage
from devices_app.management.base import DatabaseCommand
from devices_app.qr import bridge_address

PASSWORD_VARIABLE = "DJANGO_SUPERUSER_PASSWORD"
DEFAULT_NAME = "admin"


class Command(DatabaseCommand):
    help = (
        "Make a user of the admin site. In a terminal it asks for the name and the password."
        " Without one it takes --username, and the password from the variable"
        f" {PASSWORD_VARIABLE} or the first line of standard input."
        f" A forgotten password: `{manage(conf, 'changepassword NAME')}`."
    )
    table = get_user_model()._meta.db_table

    def add_arguments(self, parser: CommandParser) -> None:
        default = f"the user's name (default: {DEFAULT_NAME}, or asked for)"
        parser.add_argument("--username", help=default)

    def handle(self, *args: Any, **options: Any) -> None:
        name, password = options["username"], os.environ.get(PASSWORD_VARIABLE)
        if password is None and not sys.stdin.isatty():
            password = sys.stdin.readline().rstrip("\r\n")
            if not password:
                raise CommandError(
                    f"Without a terminal the password comes from {PASSWORD_VARIABLE} or the first"
                    " line of standard input, and there is none. No user was made."
                )
        elif password is None:
            name = name or input(f"Name [{DEFAULT_NAME}]: ").strip()
            password = getpass.getpass("Password (10 characters or more): ")
            if getpass.getpass("Password again: ") != password:
                raise CommandError("The two are not the same. No user was made.")
        user = User(username=name or DEFAULT_NAME, is_staff=True, is_superuser=True)
        try:
            user.clean_fields(exclude=["password"])
            user.validate_unique()
            validate_password(password, user)
        except ValidationError as error:
            why = " ".join(map(str.strip, error.messages))
            raise CommandError(f"{why} No user was made.") from None
        user.set_password(password)
        user.save()
        where = f"{bridge_address().base_url}/admin/"
        self.stdout.write(f"Made the admin user {user.username}. Log in at {where}")
