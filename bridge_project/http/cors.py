"""Let pages of other origins read the errors that Django does not answer (D44)."""

from corsheaders.middleware import CorsMiddleware
from django.http import HttpRequest, HttpResponse


def headers_for(path: str, origin: str) -> dict[str, str]:
    """Return the CORS headers that Django's answer would have."""
    request, answer = HttpRequest(), HttpResponse()
    request.path_info, request.META["HTTP_ORIGIN"] = path, origin
    CorsMiddleware(lambda _: answer).add_response_headers(request, answer)
    return {name: value for name, value in answer.items() if name != "Content-Type"}
