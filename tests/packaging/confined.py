"""confined.py PROFILE COMMAND…: runs a command under a seccomp profile in the format of container runtimes."""

import errno
import json
import os
import sys

import seccomp

profile = json.load(open(sys.argv[1]))
assert profile["defaultAction"] == "SCMP_ACT_ERRNO", profile["defaultAction"]
confinement = seccomp.SyscallFilter(seccomp.ERRNO(profile["defaultErrnoRet"]))
for rule in profile["syscalls"]:
    assert rule["action"] == "SCMP_ACT_ALLOW", rule["action"]
    for name in rule["names"]:
        # A name that another architecture has is none here.
        if seccomp.resolve_syscall(seccomp.Arch(), name) >= 0:
            confinement.add_rule(seccomp.ALLOW, name)
confinement.load()
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{sys.argv[2]}: {errno.errorcode[error.errno]}")
