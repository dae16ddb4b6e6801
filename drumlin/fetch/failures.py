"""What libcurl's errors mean to us."""

from __future__ import annotations

import pycurl

from drumlin.model import FailureKind

# Errors of libcurl that pycurl has no name for: one stream of a connection broke; a header line of more than 100 KB.
E_HTTP2_STREAM = 92
E_TOO_LARGE = 100

_KIND_OF_ERROR = {
    pycurl.E_COULDNT_RESOLVE_HOST: FailureKind.DNS,
    pycurl.E_COULDNT_RESOLVE_PROXY: FailureKind.DNS,
    pycurl.E_COULDNT_CONNECT: FailureKind.CONNECT,
    pycurl.E_OPERATION_TIMEDOUT: FailureKind.TIMEOUT,
    pycurl.E_SSL_CONNECT_ERROR: FailureKind.TLS,
    pycurl.E_PEER_FAILED_VERIFICATION: FailureKind.TLS,
    pycurl.E_SSL_CACERT: FailureKind.TLS,
    pycurl.E_SSL_CACERT_BADFILE: FailureKind.TLS,
    pycurl.E_SSL_CERTPROBLEM: FailureKind.TLS,
    pycurl.E_SSL_CIPHER: FailureKind.TLS,
    pycurl.E_SSL_INVALIDCERTSTATUS: FailureKind.TLS,
    pycurl.E_SSL_SHUTDOWN_FAILED: FailureKind.TLS,
    pycurl.E_USE_SSL_FAILED: FailureKind.TLS,
    pycurl.E_RECV_ERROR: FailureKind.RESET,
    pycurl.E_SEND_ERROR: FailureKind.RESET,
    pycurl.E_GOT_NOTHING: FailureKind.RESET,
    pycurl.E_PARTIAL_FILE: FailureKind.RESET,
    pycurl.E_HTTP2: FailureKind.RESET,
    E_HTTP2_STREAM: FailureKind.RESET,
    pycurl.E_ABORTED_BY_CALLBACK: FailureKind.RESET,
    pycurl.E_FILESIZE_EXCEEDED: FailureKind.TOO_LARGE,
    E_TOO_LARGE: FailureKind.TOO_LARGE,
}


def failure_kind(code: int, refused: bool) -> str:
    if refused:
        return FailureKind.FORBIDDEN_ADDRESS
    return _KIND_OF_ERROR.get(code, FailureKind.PROTOCOL)


def error_text(code: int, refused: bool, message: str) -> str:
    """What libcurl says, except where it does not know why it failed."""
    if refused:
        return "the address is private; --allow-private permits it"
    if code == E_TOO_LARGE:
        return "a header line that is too long"
    return "the connection broke before the answer" if code == pycurl.E_ABORTED_BY_CALLBACK else message
