"""Answer a service worker: its receipts, and renewed subscriptions (D74)."""

from contextlib import suppress
from typing import cast

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from bridge_project.http.json import json_model
from bridge_project.http.view import BridgeAPIView
from bridge_project.kernel import limits, threads
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol import http
from devices_app.authentication import DeviceOnly
from devices_app.models import Device
from devices_app.push import endpoints, subscriptions
from devices_app.tokens import Principal


class ReceiptView(BridgeAPIView):
    """Note that the device has shown its last push."""

    rate_group = "push"
    permission_classes = [DeviceOnly]

    @extend_schema(
        operation_id="push_receipt", request=http.PushReceipt, responses=http.PushReceived
    )
    def post(self, request: Request) -> Response:
        shown = json_model(request, http.PushReceipt).notification_id
        return Response({"recorded": subscriptions.record_shown(_device(request), shown)})


class SubscriptionView(BridgeAPIView):
    """Renew the subscription of a device that has one, after `pushsubscriptionchange`."""

    rate_group = "push"
    permission_classes = [DeviceOnly]

    @extend_schema(
        operation_id="push_subscription", request=http.PushRenewal, responses=http.PushRenewed
    )
    def post(self, request: Request) -> Response:
        given = json_model(request, http.PushRenewal).subscription
        parts = endpoints.check(given.endpoint)
        with suppress(OSError):  # as in push_subscribe
            looked_up = threads.push_requests.begin(endpoints.resolve, parts)
            looked_up.result(limits.PUSH_TEST_SECONDS)
        try:
            subscriptions.subscribe(_device(request), given)
        except ValueError:
            text = "`subscription.keys.p256dh` is no public key."
            raise BridgeError("PUSH_ENDPOINT_REFUSED", text) from None
        return Response({"subscribed": True})


def _device(request: Request) -> Device:
    return cast(Device, cast(Principal, request.user).device)
