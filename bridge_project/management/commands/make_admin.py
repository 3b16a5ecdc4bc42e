"""``make_admin``: the admin site's first user, asked for in a terminal or given by a script."""

from __future__ import annotations

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

from devices_app.management.base import DatabaseCommand, bridge_address

PASSWORD_VARIABLE = "DJANGO_SUPERUSER_PASSWORD"
DEFAULT_NAME = "admin"
TRIES = 3


class Command(DatabaseCommand):
    help = (
        "Make a user of the admin site. In a terminal it asks for the name and the password. Without one it takes --username, and the password from "
        f"the variable {PASSWORD_VARIABLE} or the first line of standard input. A forgotten password: `python manage.py changepassword NAME`."
    )
    table = get_user_model()._meta.db_table

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--username", help=f"the user's name (default: {DEFAULT_NAME}, or asked for)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        given = os.environ.get(PASSWORD_VARIABLE)
        asks = given is None and sys.stdin.isatty()
        user = User(
            username=options["username"] or (_ask_name() if asks else DEFAULT_NAME),
            is_staff=True,
            is_superuser=True,
        )
        try:
            user.clean_fields(exclude=["password"])
            user.validate_unique()
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from None
        user.set_password(
            self._ask_password(user)
            if asks
            else _checked(given if given is not None else sys.stdin.readline().rstrip("\r\n"), user)
        )
        user.save()
        self.stdout.write(
            f"Made the admin user {user.username}. Log in at {bridge_address().base_url}/admin/"
        )

    def _ask_password(self, user: User) -> str:
        for _ in range(TRIES):
            try:
                password = _checked(getpass.getpass("Password: "), user)
            except CommandError as error:
                self.stderr.write(str(error))
                continue
            if getpass.getpass("Password again: ") == password:
                return password
            self.stderr.write("The two are not the same.")
        raise CommandError("No user was made.")


def _ask_name() -> str:
    return input(f"Name [{DEFAULT_NAME}]: ").strip() or DEFAULT_NAME


def _checked(password: str, user: User) -> str:
    if not password:
        raise CommandError(f"No password: set {PASSWORD_VARIABLE} or give it on standard input.")
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise CommandError(" ".join(error.messages)) from None
    return password
