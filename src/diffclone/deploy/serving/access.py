"""Who may use the server: the Host and Origin of a request, its token, and the address that the server listens on.

A web page can make a browser send requests to this machine. Such a request names the page in `Origin`. After DNS
rebinding the page's own domain points to this machine, and the request names that domain in `Host`. An IP address in
`Host` cannot come from rebinding.
"""

import errno
import hmac
import ipaddress
import os
import socket
from collections.abc import Sequence
from http import HTTPStatus
from typing import final

from diffclone.deploy.serving.bodies import RequestError
from diffclone.errors import InvalidSettings

ANY = "*"
MISSING = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


@final
class Access:
    """Refuses requests from web pages, under unknown names and without the token."""

    def __init__(self, token: str | None, allow_hosts: Sequence[str], allow_origins: Sequence[str]):
        if token is not None and not token.strip():
            raise InvalidSettings("the token is empty; use one that is hard to guess, or none on 127.0.0.1.")
        for origin in allow_origins:
            if origin != ANY and ("://" not in origin or origin.count("/") != 2):
                raise InvalidSettings(
                    f"--allow-origin {origin} is not an origin; expected e.g. https://example.org:8080."
                )
        for host in allow_hosts:
            if "/" in host or (":" in host and not is_address(host)):
                raise InvalidSettings(f"--allow-host {host} is not a name; expected e.g. robot.local, without a port.")
        self.authorization = None if token is None else f"Bearer {token}".encode()
        self.hosts = {"localhost", *(host.lower() for host in allow_hosts)}
        self.origins = {origin.lower() for origin in allow_origins}

    def check(self, host: str | None, origin: str | None) -> None:
        """Refuse an unknown Host and any Origin but the server's own. Only HTTP/1.0 clients send no Host."""
        if host is not None and ANY not in self.hosts:
            name = host_name(host)
            if name not in self.hosts and not is_address(name):
                raise RequestError(
                    HTTPStatus.FORBIDDEN, "this Host is not served here; allow its name with --allow-host NAME."
                )
        own = host is not None and origin == f"http://{host}"
        if origin is not None and not own and not self.origins & {origin.lower(), ANY}:
            raise RequestError(
                HTTPStatus.FORBIDDEN, "requests from web pages are refused; allow one with --allow-origin ORIGIN."
            )

    def check_token(self, authorization: bytes) -> None:
        """Refuse a missing or wrong token."""
        if self.authorization is not None and not hmac.compare_digest(authorization, self.authorization):
            raise RequestError(HTTPStatus.UNAUTHORIZED, "the header `Authorization: Bearer TOKEN` is missing or wrong.")


def host_name(host: str) -> str:
    """Return the name or address in a Host header, without the port and the brackets of IPv6."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower().removesuffix(".")


def is_address(name: str) -> bool:
    """Return whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach every address of `host`."""
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses_of(host))


def addresses_of(host: str) -> list[str]:
    """Return the addresses of a name, in the order of preference."""
    try:
        entries = socket.getaddrinfo(host or "0.0.0.0", None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise InvalidSettings(f"--host {host} is not an address of this machine; try 127.0.0.1.") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def listen(host: str, port: int, *, backlog: int) -> list[socket.socket]:
    """Open a socket on each address of `host`; port 0 selects a free one."""
    sockets: list[socket.socket] = []
    cause = ""
    for address in addresses_of(host):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            sockets.append(socket.create_server((address, port), family=family, backlog=backlog))
            port = sockets[0].getsockname()[1]
        except OverflowError:
            cause = "ports are 0 to 65535. Choose another --port"
            break
        except OSError as error:
            way_out = "--host, e.g. 127.0.0.1" if error.errno in MISSING else "--port; 0 is any free one"
            cause = f"{os.strerror(error.errno or 0)}. Choose another {way_out}"
            if error.errno not in MISSING:
                break
    else:  # localhost may name an address of a protocol that this machine does not have
        if sockets:
            return sockets
    for opened in sockets:
        opened.close()
    raise InvalidSettings(f"cannot listen on {host} port {port}: {cause}.")
