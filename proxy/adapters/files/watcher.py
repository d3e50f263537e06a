"""The policies in force, and the rules that choose among them, updated when their files change.

Requests get policies from memory, so that a name invented by a client never opens a file. A background task
checks the files. A change is applied only if the files were the same in two checks, so that a file an editor
has half written is not read. A file with errors changes nothing; the log, a metric and `stale` report it. Of
the settings file, the server's policy and the rules are reloaded; other settings take effect at the next
start.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from proxy.adapters.files.policies import PolicyLibrary, Stamp, is_path
from proxy.adapters.files.settings import DEFAULT_POLICY, SettingsFile
from proxy.adapters.files.toml_file import FileError
from proxy.core.policy.policy import Policy, PolicySet
from proxy.telemetry import Metrics, log_event, log_fault, log_warning

_EVERY = 0.5
"""Seconds between two checks; an edit is in force after two checks."""


@dataclass(frozen=True)
class LoadedPolicies:
    """Policies and rules, each as its file was when last valid. A new worker is given them by its supervisor.

    So it starts under the same policies as the others, even while a file has errors.
    """

    library: PolicyLibrary
    source: str
    """The name or the path of the server's policy."""
    default: str
    """The name of the server's policy."""
    by_name: Mapping[str, Policy]
    stamps: Mapping[Path, Stamp | None]
    """The stamps of the files when they were last read, errors included."""
    seen: Mapping[Path, Stamp | None]
    """The stamps of the files at the last look. They are read once two looks have seen the same."""
    written: SettingsFile | None = None
    began_with: SettingsFile | None = None
    """The settings file at the start."""
    complaint: str = ""
    """The current error of the settings file; empty if there is none."""
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """The current errors of policies, by name."""

    @classmethod
    def load(cls, library: PolicyLibrary, default: str, written: SettingsFile | None = None) -> Self:
        """Read all policies; ``written`` is the settings file as it was read.

        Raises FileError if `default` (a name or a path), or a policy that a rule names, cannot be used.
        """
        stamps = _stamps(library, default, written)
        if written is not None:
            stamps[written.file.path] = written.stamp
            written.check(library)
        policy = library.load(default)
        usable, faulty = _read(library, default, policy.name)
        return cls(
            library=library,
            source=default,
            default=policy.name,
            by_name={policy.name: policy, **usable},
            stamps=stamps,
            seen=stamps,
            written=written,
            began_with=written,
            refused=faulty,
        )

    def reloaded(self) -> LoadedPolicies:
        """Return what the files say, if they have changed and were the same at the last look.

        Blocks while files are read.
        """
        stamps = _stamps(self.library, self.source, self.written)
        if stamps == self.stamps or stamps != self.seen:
            return replace(self, seen=stamps)
        now, before = self._with_settings(), dict(self.by_name)
        loaded, faulty = _read(self.library, now.source, now.default)
        if now.default != self.default and self.default not in (loaded.keys() | faulty.keys()):
            del before[self.default]  # the former default was loaded by its path
        gone = {name: f"{name}: its file is gone" for name in before.keys() - loaded.keys() - faulty.keys()}
        by_name = {**before, **now.by_name, **loaded}
        return replace(now, by_name=by_name, stamps=stamps, refused=faulty | gone)

    def _with_settings(self) -> LoadedPolicies:
        """Return the rules and the server's policy of the settings file, if all that it names can be used.

        Of the policies there is only the server's, if it is another one now.
        """
        before = self.written
        same = replace(self, by_name={})
        if before is None:
            return same
        in_library = self.by_name.keys() - ({self.default} if is_path(self.source) else set())
        try:
            edited = SettingsFile.read(before.file.path, before.decided)
            edited.check(self.library, in_library)
            source = edited.policy or (DEFAULT_POLICY if before.policy else self.source)
            default = self.library.load(source) if source != self.source else None
        except FileError as error:
            return replace(same, complaint=str(error))
        same = replace(same, written=edited, complaint="")
        if default is None:
            return same
        return replace(same, source=source, default=default.name, by_name={default.name: default})


def _stamps(library: PolicyLibrary, source: str, written: SettingsFile | None) -> dict[Path, Stamp | None]:
    return library.stamps(source, *(() if written is None else (written.file.path,)))


def _read(library: PolicyLibrary, source: str, default: str) -> tuple[dict[str, Policy], dict[str, str]]:
    """Return the policies that can be used, and the errors of the others, by name."""
    usable, faulty = dict[str, Policy](), dict[str, str]()
    for name in dict.fromkeys([*library.names(), default]):
        try:
            usable[name] = library.load(source if name == default else name)
        except FileError as error:
            faulty[name] = str(error)
    return usable, faulty


class WatchedPolicies:
    """Policies by name, each in the last version of its file that was valid."""

    def __init__(self, loaded: LoadedPolicies, metrics: Metrics) -> None:
        self._metrics = metrics
        self._put_in_force(loaded)
        _warn_of_retired_keys(loaded.by_name.values())
        self._tell_refused({})
        metrics.settings_stale.set(bool(loaded.complaint))

    def named_or_default(self, name: str) -> Policy:
        return self.in_force.named_or_default(name)

    def stale(self) -> list[str]:
        """Return the policies whose files have errors; their last valid versions, if any, are in force."""
        return sorted(self._loaded.refused)

    def settings_fault(self) -> str:
        """Return the current error of the settings file; empty if there is none."""
        return self._loaded.complaint

    def encrypts(self) -> bool:
        """Return whether any policy in force asks for encryption of the store; then all writes are sealed."""
        return self._encrypts

    def _put_in_force(self, loaded: LoadedPolicies) -> None:
        by_name, rules = loaded.by_name, loaded.written.rules if loaded.written is not None else ()
        self._loaded = loaded
        self.in_force = PolicySet(by_name[loaded.default], by_name, rules)
        """The policies that requests get now."""
        self._encrypts = any(policy.store.encrypt for policy in by_name.values())

    async def watch(self) -> None:
        """Check the files regularly, off the event loop, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            try:
                await asyncio.to_thread(self.poll)
            except Exception as error:  # noqa: BLE001 - policies stay as they are; the next check may succeed
                log_fault("policy files could not be looked at", error)

    def poll(self) -> None:
        """Apply changed files if they are the same as at the last poll. Blocks while files are read."""
        before, now = self._loaded, self._loaded.reloaded()
        self._loaded = now
        if now.stamps == before.stamps:
            return
        self._put_in_force(now)
        self._tell_settings(before)
        edited = sorted(
            name
            for name in now.by_name.keys() - now.refused.keys()
            if name in before.refused or now.by_name[name] != before.by_name.get(name)
        )
        self._metrics.policy_reloads.labels(result="refused").inc(self._tell_refused(before.refused))
        self._metrics.policy_reloads.labels(result="loaded").inc(len(edited))
        _warn_of_retired_keys(now.by_name[name] for name in edited)
        if edited:
            log_event("policies were read anew", policies=edited)

    def _tell_settings(self, before: LoadedPolicies) -> None:
        """Log what an edit of the settings file came to, and count it."""
        now, former = self._loaded.written, before.written
        if now is None or former is None:
            return
        reason = self._loaded.complaint
        self._metrics.settings_stale.set(bool(reason))
        if reason:
            if reason != before.complaint:
                self._metrics.settings_reloads.labels(result="refused").inc()
                log_warning("the settings file cannot be used as it is now: nothing changes", reason=reason)
        elif before.complaint or (now.rules, now.values) != (former.rules, former.values):
            self._metrics.settings_reloads.labels(result="loaded").inc()
            file, default = str(now.file.path), self._loaded.default
            log_event("the settings file was read anew", file=file, policy=default)
            if waiting := now.differs_from(self._loaded.began_with or former):
                log_warning("settings were edited that take effect at the next start", settings=waiting)

    def _tell_refused(self, before: Mapping[str, str]) -> int:
        """Log each new error of policies once; return how many policies have a new error."""
        news: defaultdict[str, list[str]] = defaultdict(list)
        for name, reason in sorted(self._loaded.refused.items()):
            if before.get(name) != reason:
                news[reason].append(name)
        for reason, names in news.items():
            log_warning(
                "a policy cannot be used as it is now",
                reason=reason,
                as_before=[name for name in names if name in self.in_force.by_name],
                unusable=[name for name in names if name not in self.in_force.by_name],
            )
        self._metrics.policies_stale.set(len(self._loaded.refused))
        return sum(map(len, news.values()))


def _warn_of_retired_keys(policies: Iterable[Policy]) -> None:
    for policy in policies:
        for _, reason in policy.retired():
            log_warning("a policy has a key that does nothing", policy=policy.name, reason=reason)
