"""Secrets that the first start makes and every later one finds: the admin token, the naming secret."""

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from proxy.errors import SettingsError

_BYTES = 32


def kept_secret(path: Path) -> str:
    """The secret in the file `path`, made on the first call: 43 characters that a URL and a header can hold.

    Of several processes that make it at once, all get the one that was there first. The file is its owner's
    alone (0600), and so is a directory that has to be made for it (0700). Raises SettingsError where the file
    is empty or cannot be kept.
    """
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Written beside it, then linked: the file is never there without its content.
            descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # O_EXCL, 0600
            try:
                with os.fdopen(descriptor, "w", encoding="ascii") as file:
                    file.write(secrets.token_urlsafe(_BYTES) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileExistsError):  # another process was first; its secret counts
                    path.hardlink_to(draft)
            finally:
                Path(draft).unlink()
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)  # volumes and copies widen it
        secret = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise SettingsError(f"{path} cannot be kept: {error.strerror}") from error
    if not secret:
        raise SettingsError(f"{path} is empty; delete it, and the next start makes a new one")
    return secret
