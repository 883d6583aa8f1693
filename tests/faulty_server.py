"""A small HTTP server with faults at will, for what a sound server never does.

It keeps objects by path and understands as much of S3 as the store uses (path style, without
checking signatures), so that it can stand in for a web server and for an S3 server that is
broken in one particular way.
"""

import hashlib
import http.server
import pathlib
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@dataclass
class Faults:
    """What goes wrong. path: only for paths that contain it.

    status: every answer has it. hang: nothing is answered until the server ends. cut: half of
    the body, then the end. trickle: the body byte by byte, for ever slower than a reader's
    patience. garble: changes the body. redirect: to this URL. ignore_conditions: of writes.
    lose_answers: so many writes are done, and their connection closed without an answer.
    """

    path: str = ""
    status: int = 0
    hang: bool = False
    cut: bool = False
    trickle: bool = False
    garble: Callable[[bytes], bytes] | None = None
    redirect: str = ""
    ignore_conditions: bool = False
    lose_answers: int = 0


@dataclass
class FaultyServer:
    """The running server. objects: by path without the leading slash."""

    objects: dict[str, bytes] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    requests: list[tuple[str, str]] = field(default_factory=list)
    use_tags: bool = True
    scheme: str = "http"
    ended: threading.Event = field(default_factory=threading.Event)

    def start(self, certificate: pathlib.Path | None = None) -> "FaultyServer":
        """Listen on a free loopback port; certificate: a PEM file with key and certificate."""
        world = self

        class Handler(_Handler):
            server_world = world

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> "FaultyServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Handler(http.server.BaseHTTPRequestHandler):
    server_world: FaultyServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two packets

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        world, path = self.server_world, self._path()
        query = parse_qs(urlsplit(self.path).query)
        if self._fails(path):
            return
        if "list-type" in query:
            self._answer(200, self._listing(path, query.get("prefix", [""])[0]))
            return
        data = world.objects.get(path)
        if data is None:
            code = b"<Error><Code>NoSuchKey</Code></Error>"
            self._answer(404, code)
            return
        tag = _tag(data)
        if world.use_tags and self.headers.get("If-None-Match") == tag:
            self._answer(304, b"", tag)
            return
        faults = world.faults if world.faults.path in path else Faults()
        if faults.garble is not None:
            data = faults.garble(data)
        self._answer(200, data, tag, faults)

    def do_PUT(self) -> None:
        world, path = self.server_world, self._path()
        data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self._fails(path):
            return
        current = world.objects.get(path)
        if not world.faults.ignore_conditions:
            wanted = self.headers.get("If-Match")
            lost = self.headers.get("If-None-Match") == "*" and current is not None
            lost = lost or (
                wanted is not None and wanted != (None if current is None else _tag(current))
            )
            if lost:
                self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
        world.objects[path] = data
        if world.faults.lose_answers and world.faults.path in path:
            world.faults.lose_answers -= 1
            self.close_connection = True
            return
        self._answer(200, b"", _tag(data))

    def do_DELETE(self) -> None:
        self.server_world.objects.pop(self._path(), None)
        self._answer(204, b"")

    def _path(self) -> str:
        path = unquote(urlsplit(self.path).path).lstrip("/")
        self.server_world.requests.append((self.command, path))
        return path

    def _fails(self, path: str) -> bool:
        world = self.server_world
        faults = world.faults
        if faults.path not in path:
            return False
        if faults.hang:
            world.ended.wait()
            self.close_connection = True
            return True
        if faults.redirect:
            self.send_response(302)
            self.send_header("Location", faults.redirect)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return True
        if faults.status:
            self._answer(faults.status, b"<Error><Code>Fault</Code></Error>")
            return True
        return False

    def _listing(self, bucket: str, prefix: str) -> bytes:
        keys = [key.removeprefix(f"{bucket}/") for key in sorted(self.server_world.objects)]
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key></Contents>"
            for key in keys
            if key.startswith(prefix)
        )
        return f"<ListBucketResult>{rows}</ListBucketResult>".encode()

    def _answer(
        self, status: int, data: bytes, tag: str = "", faults: Faults | None = None
    ) -> None:
        faults = faults or Faults()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if tag and self.server_world.use_tags:
            self.send_header("ETag", tag)
        self.end_headers()
        if faults.cut:
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        elif faults.trickle:
            for byte in data:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if self.server_world.ended.wait(0.02):
                    break
            self.close_connection = True
        else:
            self.wfile.write(data)


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def make_certificate(folder: pathlib.Path) -> pathlib.Path:
    """A self-signed certificate for 127.0.0.1 and its key, in one PEM file."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tabletune test")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path
