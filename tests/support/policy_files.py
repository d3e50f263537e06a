"""A directory of policy files that a test writes."""

from pathlib import Path

import pytest

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.toml_file import FileError
from proxy.core.policy.policy import Policy


class Files:
    """Policy files in a temporary directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.library = PolicyLibrary(directory)

    def write(self, name: str, text: str) -> Path:
        path = self.directory / f"{name}.toml"
        path.write_text(text, encoding="utf-8")
        return path

    def load(self, text: str) -> Policy:
        self.write("x", text)
        return self.library.load("x")

    def complaint(self, text: str) -> str:
        with pytest.raises(FileError) as caught:
            self.load(text)
        return str(caught.value).removeprefix(f"{self.directory}/")
