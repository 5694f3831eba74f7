"""Owns a Python without what only POSIX has, as far as one can be made of a Python that has it.

Put into a folder on the search path as `sitecustomize.py`, it holds for a command and for all that it starts. What the
standard library and others are made of is loaded first, as it is here: they have ways of their own for Windows.
`os.name` stays, because paths depend on it.
"""

import asyncio  # noqa: F401
import concurrent.futures.thread  # noqa: F401
import importlib
import importlib.util
import multiprocessing.pool  # noqa: F401
import os
import select
import shutil
import signal
import socket
import sqlite3  # noqa: F401
import subprocess
import sys
import tempfile  # noqa: F401
import urllib.request  # noqa: F401

OTHERS = """
aiohttp click httptools jsonschema_rs numpy prometheus_client pyrwkv_tokenizer rich.console starlette.applications
tokenizers uvicorn.protocols.http.httptools_impl xllamacpp zstandard
"""
"""Packages that turnscript uses and that can be had for Windows."""
MODULES = """
fcntl grp posix pty pwd readline resource syslog termios tty uvloop
"""
NAMES = {
    os: """
        O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK chown fchmod fchown fork getegid geteuid getgid getpgid getuid
        killpg lchown mkfifo posix_fadvise pread pwrite register_at_fork sched_getaffinity setsid statvfs sync sysconf
    """,
    select: "PIPE_BUF POLLIN POLLOUT epoll kqueue poll",
    signal: "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGUSR1 SIGUSR2 alarm pthread_sigmask setitimer sigwait",
    socket: "MSG_DONTWAIT SO_REUSEPORT",
}


def become_windows() -> None:
    """From here on, this process is no POSIX any more."""
    for name in OTHERS.split():
        importlib.import_module(name)
    for name in MODULES.split():
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in NAMES.items():
        for name in names.split():
            vars(module).pop(name, None)
    subprocess.Popen.kill = subprocess.Popen.terminate  # type: ignore[method-assign]  # as it is there
    # Python 3.13 looks for these when it is loaded: `dir_fd`, and which processors a process may use.
    vars(shutil)["_use_fd_functions"] = False
    vars(os)["process_cpu_count"] = os.cpu_count
    sys.platform = "win32"


if __name__ == "sitecustomize":
    become_windows()
