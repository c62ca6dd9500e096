"""`python -m reports.serve DIR`: results files of a folder as pages on this machine alone, which follow a run that goes
on. A page is made when it is asked for, so that nothing is written and nothing has to be told when a file grows."""

import argparse
import importlib.util
import os
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from reports.folder import POLICY, REFRESH_S, Folder
from reports.visible import line

HOST, PORT = "127.0.0.1", 8765


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD for `/` and `/page/NAME`."""

    server_version, sys_version = "ringcheck", ""
    folder: Folder

    def do_GET(self) -> None:
        if self.headers.get("Host", "") not in self.hosts():
            self.answer(HTTPStatus.FORBIDDEN, "asked for under a name that is not this machine's own\n")
            return
        try:
            path = unquote(urlsplit(self.path).path)
            if path == "/":
                self.answer(HTTPStatus.OK, self.folder.index(), POLICY)
            elif path.startswith("/page/"):
                self.answer(HTTPStatus.OK, self.folder.page(path.removeprefix("/page/")), "frame-ancestors 'none'")
            else:
                raise KeyError(path)
        except KeyError:
            self.answer(HTTPStatus.NOT_FOUND, "no such results file\n")
        except ValueError as error:
            self.answer(HTTPStatus.UNPROCESSABLE_ENTITY, f"{line(error)}\n", again=True)

    do_HEAD = do_GET

    def hosts(self) -> tuple[str, ...]:
        """Names under which this server may be asked: a foreign page must not reach it through a name of its own."""
        port = self.server.server_address[1]
        return f"{HOST}:{port}", f"localhost:{port}"

    def answer(self, status: HTTPStatus, text: str, policy: str = "", again: bool = False) -> None:
        """A page where there is a `policy`, else plain text; with `again` the browser asks once more in a while."""
        data = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", f"text/{'html' if policy else 'plain'}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (("Content-Security-Policy", policy or "default-src 'none'"), ("Cache-Control", "no-store"),
                            ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer")):
            self.send_header(name, value)
        if again:
            self.send_header("Refresh", f"{REFRESH_S:.0f}")
        self.end_headers()
        if self.command != "HEAD":
            try:
                self.wfile.write(data)
            except ConnectionError:
                self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


def server(root: str | Path, port: int = PORT) -> ThreadingHTTPServer:
    """A server of a folder on 127.0.0.1, not yet running; port 0 is a free one. Raises ValueError when it cannot be."""
    if importlib.util.find_spec("jinja2") is None:
        raise ValueError("the report needs jinja2: pip install 'ringcheck[report]'")
    if not os.path.isdir(root):
        raise ValueError(f"{root} is no folder")
    if not 0 <= port < 1 << 16:
        raise ValueError(f"port {port} is none: 0 to 65535")
    handler = type("Bound", (Handler,), {"folder": Folder(root)})
    try:
        return ThreadingHTTPServer((HOST, port), handler)
    except OSError as error:
        raise ValueError(f"port {port} cannot be served: {error.strerror or error}") from error


def main(arguments: list[str] | None = None) -> int:
    """Serves until Ctrl-C. Exit code 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(
        prog="ringcheck watch",
        description="Results files of a folder as pages on this machine; the page of a run that goes on follows it.")
    parser.add_argument("folder", nargs="?", default="results", metavar="DIR", help="default: %(default)s")
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help="default: %(default)s; 0 is a free one")
    options = parser.parse_args(arguments)
    try:
        serving = server(options.folder, options.port)
    except ValueError as error:
        print(f"ringcheck watch: {error}", file=sys.stderr)
        return 2
    print(f"# http://{HOST}:{serving.server_address[1]}/    {options.folder}, Ctrl-C ends", flush=True)
    with serving:
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
