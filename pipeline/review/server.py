"""The page of a review from a server on this machine, which stores each answer as it is given.

It listens on the loopback alone. What is asked for must bear the token of its address; so no other page in the browser,
which cannot know it, and no other user of the machine gets a picture or stores an answer. Requests of a foreign Host (a
name that was made to lead here) or Origin are refused. Pictures go by the number of their question, never by a path.
"""

import hmac
import json
import secrets
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from pipeline.core.errors import SpmlError
from pipeline.core.text import show_text
from pipeline.review.answers import Answers, is_value
from pipeline.review.page import LARGE, Review, encode_jpeg, make_thumbnails, render_page

HOST = "127.0.0.1"
MOST = 1024
"""Bytes of an answer at most."""
SECONDS = 30
"""A connection that says nothing for so long is closed."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
}


class Refused(Exception):
    """A request is not answered.

    Args:
        status: HTTP status.
        reason: What is wrong with it.
    """

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ReviewServer(ThreadingHTTPServer):
    """Serves a review until it is interrupted.

    Args:
        review: What is reviewed.
        answers: Where answers go.
        picture: Returns the (h, w, 3) uint8 pixels of a row of the table.
        port: To listen on; 0: any that is free.
        token: Last part of the address; None: a random one.

    Raises:
        OSError: The port is in use.
    """  # noqa: DOC502  raised by the base class

    daemon_threads = True

    def __init__(
        self,
        review: Review,
        answers: Answers,
        picture: Callable[[int], np.ndarray],
        port: int = 0,
        token: str | None = None,
    ) -> None:
        self.review, self.answers, self.picture = review, answers, picture
        self.token = token or secrets.token_urlsafe(24)
        self.thumbnails = make_thumbnails(review.questions, picture)
        super().__init__((HOST, port), _Handler)

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def page(self) -> str:
        """Return the page, with what the person has answered by now."""
        mine = self.answers.mine()
        cells = [(question.path, question.label) for question in self.review.questions]
        answered = {number: mine[cell] for number, cell in enumerate(cells) if cell in mine}
        return render_page(self.review, self.thumbnails, answered)

    def store(self, content: Any) -> str:
        """Store an answer.

        Args:
            content: ``question``, its number, and ``value``, `present`, `absent` or None.

        Returns:
            What the person should know; mostly nothing.

        Raises:
            Refused: The content is no answer to one of the questions.
        """
        if not isinstance(content, dict) or set(content) != {"question", "value"} or not is_value(content["value"]):
            raise Refused(HTTPStatus.BAD_REQUEST, "expected question and value: present, absent or null")
        question = self.review.questions[self.number(content["question"])]
        return self.answers.put(question.path, question.label, content["value"])

    def number(self, given: Any) -> int:
        """Return the number of a question.

        Args:
            given: A number, or its decimal digits.

        Raises:
            Refused: It is none.
        """
        text = str(given)
        right = isinstance(given, int | str) and not isinstance(given, bool) and text.isascii() and text.isdecimal()
        if not right or len(text) > 9 or int(text) >= len(self.review.questions):
            raise Refused(HTTPStatus.NOT_FOUND, "no such question")
        return int(text)


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version, sys_version = "spml", ""
    protocol_version = "HTTP/1.1"
    timeout = SECONDS

    def do_GET(self) -> None:  # noqa: D102
        self._reply(self._get)

    def do_POST(self) -> None:  # noqa: D102
        self._reply(self._post)

    def _get(self) -> tuple[str, bytes]:
        match self._path():
            case []:
                return "text/html; charset=utf-8", self.server.page().encode()
            case ["image", number]:
                question = self.server.review.questions[self.server.number(number)]
                return "image/jpeg", encode_jpeg(self.server.picture(question.row), LARGE, 90)
        raise Refused(HTTPStatus.NOT_FOUND, "nothing lies there")

    def _post(self) -> tuple[str, bytes]:
        if self._path() != ["answer"]:
            raise Refused(HTTPStatus.NOT_FOUND, "nothing takes answers there")
        if (origin := self.headers.get("Origin")) not in self._origins():
            raise Refused(HTTPStatus.FORBIDDEN, f"answers are taken from this page alone, not from {origin}")
        if self.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected application/json")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()) or "Transfer-Encoding" in self.headers:
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "expected a Content-Length")
        if len(length) > 9 or int(length) > MOST:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"an answer has {MOST} bytes at most")
        try:
            content = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise Refused(HTTPStatus.BAD_REQUEST, "not JSON") from error
        return "text/plain; charset=utf-8", self.server.store(content).encode()

    def _origins(self) -> list[str]:
        return [f"http://{name}:{self.server.server_port}" for name in (HOST, "localhost")]

    def _path(self) -> list[str]:
        """Return the parts of the path behind the token.

        Raises:
            Refused: Host, Origin or token is not the server's.
        """
        hosts, origins = self.headers.get_all("Host", []), self._origins()
        if len(hosts) != 1 or f"http://{hosts[0]}" not in origins:
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, "this server answers to 127.0.0.1 and localhost alone")
        if "Origin" in self.headers and self.headers["Origin"] not in origins:
            raise Refused(HTTPStatus.FORBIDDEN, "this server answers to its own page alone")
        empty, token, *parts = [*self.path.split("/"), ""]
        right = hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())
        if empty or not right or len(parts) < 2:  # the page's own links count from the token's folder
            raise Refused(HTTPStatus.FORBIDDEN, "the address lacks the token that `spml review --serve` printed, and /")
        return [part for part in parts if part]

    def _reply(self, answer: Callable[[], tuple[str, bytes]]) -> None:
        """Send what an answer is, or why there is none."""
        status, kind = HTTPStatus.OK, "text/plain; charset=utf-8"
        try:
            kind, body = answer()
        except Refused as error:
            status, body = error.status, str(error).encode()
            self.close_connection = True  # what else was sent is not read
        except SpmlError as error:
            status, body = HTTPStatus.INTERNAL_SERVER_ERROR, show_text(str(error)).encode()
            self.close_connection = True
        self.send_response(status)
        for name, value in (HEADERS | {"Content-Type": kind, "Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, D102
        pass  # a line for each request would hide the address
