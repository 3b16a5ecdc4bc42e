"""Create the admin site's first user, interactively or for a script: `make_admin`."""

import argparse
import getpass
import os
import sys
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from devices_app.invitation import bridge_address
from devices_app.management.base import DatabaseCommand

PASSWORD_VARIABLE = "DJANGO_SUPERUSER_PASSWORD"
DEFAULT_NAME = "admin"
TRIES = 3


class Command(DatabaseCommand):
    help = (
        "Make a user of the admin site. In a terminal it asks for the name and the password."
        " Without one it takes --username, and the password from the variable"
        f" {PASSWORD_VARIABLE} or the first line of standard input."
        " A forgotten password: `python manage.py changepassword NAME`."
    )
    table = get_user_model()._meta.db_table

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        default = f"the user's name (default: {DEFAULT_NAME}, or asked for)"
        parser.add_argument("--username", help=default)

    def handle(self, *args: Any, **options: Any) -> None:
        given, name = os.environ.get(PASSWORD_VARIABLE), options["username"]
        asks = given is None and sys.stdin.isatty()
        if asks and not name:
            name = input(f"Name [{DEFAULT_NAME}]: ").strip()
        user = User(username=name or DEFAULT_NAME, is_staff=True, is_superuser=True)
        try:
            user.clean_fields(exclude=["password"])
            user.validate_unique()
            if asks:
                password = self._ask(user)
            else:
                password = sys.stdin.readline().rstrip("\r\n") if given is None else given
                if not password:
                    where = f"set {PASSWORD_VARIABLE} or give it on standard input"
                    raise CommandError(f"No password: {where}.")
                validate_password(password, user)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from None
        user.set_password(password)
        user.save()
        where = f"{bridge_address().base_url}/admin/"
        self.stdout.write(f"Made the admin user {user.username}. Log in at {where}")

    def _ask(self, user: User) -> str:
        for _ in range(TRIES):
            password = getpass.getpass("Password: ")
            try:
                validate_password(password, user)
            except ValidationError as error:
                self.stderr.write(" ".join(error.messages))
                continue
            if getpass.getpass("Password again: ") == password:
                return password
            self.stderr.write("The two are not the same.")
        raise CommandError("No user was made.")
