"""Define the signals sent when a device is paired or revoked."""

from django.dispatch import Signal

# Sent in the transaction in which a token is used for the first time, authenticates for the first
# time, or is bound; keyword arguments: device, token, first (bool: the device was never used
# before, so its place in the log begins now), quiet (bool: nobody is told), notification_id (what
# the notification about it is to be called; empty: anything).
device_paired = Signal()
# Sent in the transaction in which a device is revoked; keyword argument: device.
device_revoked = Signal()
