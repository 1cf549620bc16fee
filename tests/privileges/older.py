"""Runs a command on a kernel that seems older: no Landlock, no PR_SET_MDWE.

    older.py COMMAND ARG…"""
import ctypes
import os
import struct
import sys

ALLOW, ENOSYS, EINVAL = 0x7FFF0000, 0x00050000 | 38, 0x00050000 | 22
LANDLOCK_CREATE, PRCTL, SET_MDWE = 444, 157 if os.uname().machine == "x86_64" else 167, 65
LOAD, EQUAL, ANSWER = 0x20, 0x15, 0x06
PROGRAM = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, LANDLOCK_CREATE), (ANSWER, 0, 0, ENOSYS),
           (EQUAL, 0, 3, PRCTL), (LOAD, 0, 0, 16), (EQUAL, 0, 1, SET_MDWE), (ANSWER, 0, 0, EINVAL), (ANSWER, 0, 0, ALLOW)]


def main():
    libc = ctypes.CDLL(None, use_errno=True)
    code = b"".join(struct.pack("HBBI", *line) for line in PROGRAM)
    space = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxQ", len(PROGRAM), ctypes.addressof(space))
    if libc.prctl(22, 2, head, 0, 0):  # PR_SET_SECCOMP, as root without no-new-privileges
        raise OSError(ctypes.get_errno(), "seccomp")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
