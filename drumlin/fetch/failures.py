"""Translates libcurl's errors into kinds of failure, and into words where libcurl does not know the reason itself."""

from __future__ import annotations

import pycurl

from drumlin.model import FailureKind

# Two errors of libcurl that pycurl has no name for.
E_HTTP2_STREAM = 92  # one stream of an HTTP/2 connection broke, and not the connection
E_TOO_LARGE = 100  # a header line of more than 100 KB

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


def failure_kind(code: int, refused: bool) -> FailureKind:
    """The kind of failure that an error of libcurl is. `refused` means that the guard refused the address."""
    if refused:
        return FailureKind.FORBIDDEN_ADDRESS
    return _KIND_OF_ERROR.get(code, FailureKind.PROTOCOL)


def error_text(code: int, refused: bool, message: str) -> str:
    """The reason in words: libcurl's own message, except where we caused the error and libcurl cannot know why."""
    if refused:
        return "the address is private; --allow-private permits it"
    if code == E_TOO_LARGE:
        return "a header line that is too long"
    if code == pycurl.E_FILESIZE_EXCEEDED:
        return "the body is larger than --body-bytes-max permits"
    return "the connection broke before the answer" if code == pycurl.E_ABORTED_BY_CALLBACK else message
