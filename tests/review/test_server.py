"""The loopback server: what it stores, and what it refuses."""

import http.client
import io
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline.labels.corrections import read_corrections
from pipeline.review.answers import Answers
from pipeline.review.server import MOST, ReviewServer
from tests.review.asked import CLASSES, PATHS, picture, questions, review

TOKEN = "secret-0123"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "corrections" / "pets.csv"


@pytest.fixture
def server(file: Path) -> Iterator[ReviewServer]:
    with ReviewServer(review(), Answers(file, "Ann"), picture, token=TOKEN) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: ReviewServer, method: str, path: str, body: bytes | str | None = None, **headers: str):
    """Status, headers and body of a reply; a path that starts with ~ lies below the token."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path.replace("~", f"/{TOKEN}", 1) if path.startswith("~") else path, body, named)
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply.status, dict(reply.getheaders()), content


def put(server: ReviewServer, content: object, **headers: str):
    origin = {"Origin": f"http://127.0.0.1:{server.server_port}", "Content_Type": "application/json"}
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return ask(server, "POST", "~/answer", body, **{**origin, **headers})


# ---------------------------------------------------------------------------------------------- what it is for
def test_answers_are_in_the_file_at_once(server, file):
    asked = questions()
    assert put(server, {"question": 0, "value": "present"})[0] == 200
    assert put(server, {"question": 3, "value": "absent"})[0] == 200
    found = read_corrections(file, PATHS, CLASSES)
    assert [(each.path, each.label, each.value, each.who) for each in found.answers] == [
        (asked[0].path, asked[0].label, "present", "Ann"),
        (asked[3].path, asked[3].label, "absent", "Ann"),
    ]
    put(server, {"question": 0, "value": "absent"})  # another mind takes the place of the first
    put(server, {"question": 3, "value": None})
    assert [answer.value for answer in read_corrections(file, PATHS, CLASSES).answers] == ["absent"]
    page = ask(server, "GET", "~/")[2].decode()
    assert page.count('data-stored="absent"') == 1 and 'data-stored="present"' not in page


def test_answers_of_others_stay_and_are_told(server, file):
    asked = questions()[1]
    Answers(file, "Bob").put(asked.path, asked.label, "absent")
    status, _, told = put(server, {"question": 1, "value": "present"})
    assert status == 200 and b"Bob says absent; mend" in told
    assert {(answer.who, answer.value) for answer in Answers(file, "").read()} == {
        ("Bob", "absent"),
        ("Ann", "present"),
    }


def test_many_answers_at_once_are_all_kept(server, file):
    with ThreadPoolExecutor(8) as pool:
        replies = pool.map(lambda number: put(server, {"question": number, "value": "present"})[0], range(14))
        assert set(replies) == {200}
    assert len(read_corrections(file, PATHS, CLASSES).answers) == 14
    assert {path.name for path in file.parent.iterdir()} == {"pets.csv", ".pets.csv.lock"}


def test_a_file_that_somebody_broke_stays_as_it_is(server, file):
    file.parent.mkdir()
    file.write_text("path,class,value\nplain.jpg,x\n")
    status, _, told = put(server, {"question": 0, "value": "present"})
    assert status == 500 and b"line 2" in told and file.read_text() == "path,class,value\nplain.jpg,x\n"


def test_pictures_go_by_the_number_of_their_question(server):
    for number, question in enumerate(questions()):
        status, headers, content = ask(server, "GET", f"~/image/{number}")
        assert (status, headers["Content-Type"]) == (200, "image/jpeg")
        assert abs(int(np.asarray(Image.open(io.BytesIO(content)))[2, 2, 0]) - 40 * question.row) < 12


def test_nothing_is_kept_by_a_browser_or_framed(server):
    _, headers, _ = ask(server, "GET", "~/")
    assert headers["Cache-Control"] == "no-store" and headers["Referrer-Policy"] == "no-referrer"
    assert (
        headers["X-Content-Type-Options"] == "nosniff"
        and "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    )
    assert "Access-Control-Allow-Origin" not in headers


# ---------------------------------------------------------------------------------------------- attacks
def test_it_listens_on_the_loopback_alone(server):
    assert server.server_address[0] == "127.0.0.1"
    with socket.socket() as other, pytest.raises(OSError):
        other.settimeout(1)
        other.connect(("127.0.0.2", server.server_port))


def test_tokens_are_random():
    tokens = set()
    for _ in range(3):
        with ReviewServer(review(asked=[]), Answers(Path("none.csv"), "Ann"), picture) as server:
            tokens.add(server.token)
            assert len(server.token) >= 32 and server.token in server.address
    assert len(tokens) == 3


@pytest.mark.parametrize(
    "path", ["/", "", "/wrong/", "/secret-012/", "/secret-01234/", "//", "/image/0", "/answer", f"/{TOKEN}"]
)
def test_who_lacks_the_token_gets_nothing(server, path):
    for method in ("GET", "POST"):
        status, _, content = ask(server, method, path or "/", b"{}", **{"Content_Type": "application/json"})
        assert status == 403 and b"token" in content


@pytest.mark.parametrize(
    "path",
    [
        "~/image/../../../etc/passwd",
        "~/image/..%2f..%2fetc%2fpasswd",
        "~/image//etc/passwd",
        "~/image/plain.jpg",
        "~/image/-1",
        "~/image/14",
        "~/image/0x0",
        "~/image/%D9%A1",
        "~/image/99999999999999999999",
        "~/image/",
        "~/image",
        "~/corrections/pets.csv",
        "~/../",
        "~/.git/config",
        "~/image/0/0",
    ],
)
def test_no_path_leads_out(server, path):
    assert ask(server, "GET", path)[0] == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "127.0.0.1", "localhost.evil:{port}", ""]
)
def test_a_foreign_host_is_refused(server, host):
    """A name of somebody else's that was made to lead to 127.0.0.1 (DNS rebinding)."""
    status, _, content = ask(server, "GET", "~/", Host=host.format(port=server.server_port))
    assert status == 421 and b"<html" not in content


def test_two_hosts_are_refused(server):
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=5) as plain:
        host = f"Host: 127.0.0.1:{server.server_port}\r\n"
        plain.sendall(f"GET /{TOKEN}/ HTTP/1.1\r\n{host}{host}\r\n".encode())
        assert b" 421 " in plain.recv(100)


def test_localhost_is_this_machine(server):
    assert ask(server, "GET", "~/", Host=f"localhost:{server.server_port}")[0] == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1", "http://127.0.0.1"]
)
def test_a_foreign_origin_is_refused(server, file, origin):
    given = origin.format(port=server.server_port)
    assert put(server, {"question": 0, "value": "present"}, Origin=given)[0] == 403
    assert ask(server, "GET", "~/", Origin=given)[0] == 403
    assert not file.exists()


def test_an_answer_without_an_origin_is_refused(server, file):
    body = json.dumps({"question": 0, "value": "present"})
    assert ask(server, "POST", "~/answer", body, Content_Type="application/json")[0] == 403
    assert not file.exists()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_form_is_no_answer(server, file, kind):
    assert put(server, {"question": 0, "value": "present"}, Content_Type=kind)[0] == 415
    assert not file.exists()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b"[" * 1000, 400),
        (b"[]", 400),
        (b'{"question": 0}', 400),
        (b'{"question": 0, "value": "yes"}', 400),
        (b'{"question": 0, "value": {"a": 1}}', 400),
        (b'{"question": 0, "value": "present", "path": "../../x"}', 400),
        (b'{"question": "../x", "value": "present"}', 404),
        (b'{"question": true, "value": "present"}', 404),
        (b'{"question": 1.5, "value": "present"}', 404),
        (b'{"question": -1, "value": "present"}', 404),
        (b'{"question": 14, "value": "present"}', 404),
        (b'{"question": [0], "value": "present"}', 404),
        (b" " * (MOST + 1), 413),
    ],
)
def test_what_is_no_answer_is_refused(server, file, body, status):
    assert put(server, body)[0] == status
    assert not file.exists()


@pytest.mark.parametrize("length", ["-1", "x", "1e3", "99999999999"])
def test_a_false_length_is_refused(server, length):
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=5) as plain:
        here = f"127.0.0.1:{server.server_port}"
        head = f"POST /{TOKEN}/answer HTTP/1.1\r\nHost: {here}\r\nOrigin: http://{here}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        plain.sendall(head.encode())
        assert plain.recv(100).split()[1] in (b"411", b"413")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "HEAD", "PATCH"])
def test_other_methods_are_refused(server, method):
    assert ask(server, method, "~/answer")[0] == 501


def test_an_unknown_place_takes_no_answer(server):
    origin = f"http://127.0.0.1:{server.server_port}"
    assert ask(server, "POST", "~/", b"{}", Origin=origin, Content_Type="application/json")[0] == 404
