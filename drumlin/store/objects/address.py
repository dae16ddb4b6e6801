"""Where a store of objects is, and with which credentials it is used: the usual AWS variables and files.

Only what drumlin itself must know is read here, because it signs requests for others (`signing`). If there are no keys
in variables or files, the library looks for those that a machine or a container is given; then drumlin cannot sign.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from drumlin.errors import ConfigError

SCHEME: Final = "s3://"
REGION_DEFAULT: Final = "us-east-1"
PROFILE_DEFAULT: Final = "default"
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*")


def is_objects(store: str | None) -> bool:
    """Whether a --store names a bucket; otherwise it is a directory."""
    return bool(store) and str(store).startswith(SCHEME)


class Address(msgspec.Struct, frozen=True):
    """A bucket, and the prefix in it under which everything of a store lies; the prefix may be empty."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.prefix}".rstrip("/")


def parse_address(text: str) -> Address:
    """The address in `s3://BUCKET/PREFIX`."""
    bucket, _, prefix = text.removeprefix(SCHEME).partition("/")
    prefix = prefix.strip("/")
    if not text.startswith(SCHEME) or not _BUCKET.fullmatch(bucket):
        raise ConfigError(f"{text!r} names no bucket.", "Write --store s3://BUCKET/PREFIX.")
    if prefix and not _PREFIX.fullmatch(prefix):
        hint = "Use letters, digits, dots, hyphens, underscores and = between slashes."
        raise ConfigError(f"{prefix!r} cannot be the prefix of a store.", hint)
    return Address(bucket, prefix)


class Access(msgspec.Struct, frozen=True):
    """How the service is reached. Without `endpoint` it is AWS, and without a key the library looks for one itself.
    `authority` is the file of the authority of its certificate, if it is not one that everybody trusts."""

    endpoint: str = ""
    region: str = REGION_DEFAULT
    key_id: str = ""
    secret: str = ""
    session: str = ""
    authority: str = ""

    def __repr__(self) -> str:
        return f"<Access to {self.endpoint or 'AWS'}, {self.region}>"


def find_access(environment: Mapping[str, str], home: Path) -> Access:
    """What the variables say, then the files of the profile."""
    profile = environment.get("AWS_PROFILE") or PROFILE_DEFAULT
    secrets = _section(environment.get("AWS_SHARED_CREDENTIALS_FILE"), home / ".aws" / "credentials", [profile])
    sections = [f"profile {profile}", profile]
    told = _section(environment.get("AWS_CONFIG_FILE"), home / ".aws" / "config", sections)
    if environment.get("AWS_PROFILE") and not (secrets or told):
        hint = "Name one that is in ~/.aws/credentials or ~/.aws/config, or unset AWS_PROFILE."
        raise ConfigError(f"There is no AWS profile {profile!r}.", hint)
    if environment.get("AWS_ACCESS_KEY_ID"):
        keys = [environment.get(name, "") for name in _VARIABLES]
    else:
        found = told | secrets
        keys = [found.get(name.lower(), "") for name in _VARIABLES]
    if bool(keys[0]) != bool(keys[1]):
        hint = "Set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither."
        raise ConfigError("Of the AWS key only one half is set.", hint)
    variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    endpoint = next((environment[name] for name in variables if environment.get(name)), told.get("endpoint_url", ""))
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise ConfigError(
            f"{endpoint!r} is no address of a service.", "Begin AWS_ENDPOINT_URL with http:// or https://."
        )
    regions = (environment.get("AWS_REGION"), environment.get("AWS_DEFAULT_REGION"), told.get("region"))
    authority = environment.get("AWS_CA_BUNDLE") or told.get("ca_bundle", "")
    region, (key_id, secret, session) = next(filter(None, regions), REGION_DEFAULT), keys
    return Access(endpoint.rstrip("/"), region, key_id, secret, session, authority)


_VARIABLES: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def _section(named: str | None, usual: Path, sections: list[str]) -> dict[str, str]:
    """The values of the first of these sections that a file of AWS has; none if there is no such file."""
    path, parser = Path(named).expanduser() if named else usual, configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, configparser.Error) as wrong:
        # The library's own sentence could quote a line of the file, and with it a secret.
        raise ConfigError(f"Cannot read {path} ({type(wrong).__name__}).", "It must be a file as AWS has it.") from None
    return next((dict(parser[name]) for name in sections if parser.has_section(name)), {})
