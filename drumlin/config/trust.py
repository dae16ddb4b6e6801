"""Whether a file is this user's own.

A `drumlin.toml` in the working directory is read without being asked for. In a directory of somebody else, such as
/tmp, that person could have put one there: it could name a coordinator of his, which would then be sent the user's
token. So such a file must belong to the user or to root, and nobody else may be able to write it.
"""

from __future__ import annotations

import os
import stat

ROOT_UID = 0


def who_else_may_write(status: os.stat_result) -> str:
    """Who besides this user and root can change a file, as the end of a sentence about it; empty if nobody can."""
    if status.st_uid not in (os.geteuid(), ROOT_UID):
        return "belongs to another user"
    if status.st_mode & stat.S_IWOTH:
        return "can be written by every user"
    if status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid):
        return "can be written by a group of users"
    return ""


def _is_private_group(gid: int) -> bool:
    """Whether only this user is in a group. Many systems make a group with the name of each user, and let it write all
    files of that user."""
    # Few files are writable by a group, so these modules are seldom needed.
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return (group.gr_name, gid) == (user.pw_name, user.pw_gid) and set(group.gr_mem) <= {user.pw_name}
