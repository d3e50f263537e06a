"""The policies in force, and the rules that choose among them, updated when their files change.

Requests get policies from memory, so that a name invented by a client never opens a file. A background task
checks the files. A change is applied only if the files were the same in two checks, so that a file an editor
has half written is not read. A file with errors changes nothing; the log, a metric and `stale` report it. Of
the settings file, the server's policy and the rules are reloaded; other settings take effect at the next
start.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.settings import DEFAULT, SettingsFile
from proxy.adapters.files.toml_file import FileError
from proxy.core.policy.policy import Policy, PolicySet
from proxy.telemetry import Metrics, log_event, log_fault, log_warning

_EVERY = 0.5
"""Seconds between two checks; an edit is in force after two checks."""


class WatchedPolicies:
    """Policies by name, each in the last version of its file that was valid."""

    def __init__(
        self, library: PolicyLibrary, default: str, metrics: Metrics, written: SettingsFile | None = None
    ) -> None:
        """Read all policies; ``written`` is the settings file as it was read.

        Raises FileError if `default` (a name or a path), or a policy that a rule names, cannot be used.
        """
        self._library = library
        self._source = default
        self._metrics = metrics
        self._written = self._began_with = written
        self._complaint = ""
        """The current error of the settings file; empty if there is none."""
        self._refused: dict[str, str] = {}
        """The current errors of policies, by name."""
        self._settings = () if written is None else (written.file.path,)
        """The path of the settings file, if there is one."""
        self._seen = self._applied = library.stamps(default, *self._settings)
        if written is not None:
            self._applied = {**self._applied, written.file.path: written.stamp}
            written.check(library)
        first = library.load(default)
        self._name = first.name
        usable, faulty = self._read()
        self._put_in_force({first.name: first, **usable})
        _warn_of_retired_keys(self.in_force.by_name.values())
        self._refuse(faulty)

    def named_or_default(self, name: str) -> Policy:
        return self.in_force.named_or_default(name)

    def stale(self) -> list[str]:
        """Return the policies whose files have errors; their last valid versions, if any, are in force."""
        return sorted(self._refused)

    def settings_fault(self) -> str:
        """Return the current error of the settings file; empty if there is none."""
        return self._complaint

    def encrypts(self) -> bool:
        """Return whether any policy in force asks for encryption of the store; then all writes are sealed."""
        return self._encrypts

    def _put_in_force(self, by_name: Mapping[str, Policy]) -> None:
        rules = self._written.rules if self._written is not None else ()
        self.in_force = PolicySet(by_name[self._name], by_name, rules)
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
        now = self._library.stamps(self._source, *self._settings)
        has_settled, self._seen = now == self._seen, now
        if not has_settled or now == self._applied:
            return
        self._applied = now
        before, former = self.in_force.by_name, self._name
        if self._written is not None:
            before = {**before, **self._reread(self._written)}
        loaded, faulty = self._read()
        there = loaded.keys() | faulty.keys()
        if former != self._name and former not in there:  # the former default was loaded by its path
            before = {name: policy for name, policy in before.items() if name != former}
        edited = sorted(
            name for name, policy in loaded.items() if name in self._refused or policy != before.get(name)
        )
        gone = {name: f"{name}: its file is gone" for name in before.keys() - there}
        self._put_in_force({**before, **loaded})
        refusals = self._refuse(faulty | gone)
        self._metrics.policy_reloads.labels(result="refused").inc(refusals)
        self._metrics.policy_reloads.labels(result="loaded").inc(len(edited))
        _warn_of_retired_keys(loaded[name] for name in edited)
        if edited:
            log_event("policies were read anew", policies=edited)

    def _read(self) -> tuple[dict[str, Policy], dict[str, str]]:
        """Return the policies that can be used, and the errors of the others, by name."""
        usable, faulty = dict[str, Policy](), dict[str, str]()
        for name in dict.fromkeys([*self._library.names(), self._name]):
            try:
                usable[name] = self._library.load(self._source if name == self._name else name)
            except FileError as error:
                faulty[name] = str(error)
        return usable, faulty

    def _reread(self, before: SettingsFile) -> dict[str, Policy]:
        """Reload rules and policy from the settings file, if all policies that it names can be used.

        Returns the server's policy by its name if it has changed, else nothing.
        """
        try:
            edited = SettingsFile.read(before.file.path, before.decided)
            edited.check(self._library, self.in_force.by_name)
            source = edited.policy or (DEFAULT if before.policy else self._source)
            default = self._library.load(source) if source != self._source else None
        except FileError as error:
            if (reason := str(error)) != self._complaint:
                self._metrics.settings_reloads.labels(result="refused").inc()
                log_warning("the settings file cannot be used as it is now: nothing changes", reason=reason)
            self._complaint = reason
            self._metrics.settings_stale.set(1)
            return {}
        is_news = self._complaint or (edited.rules, edited.values) != (before.rules, before.values)
        self._written, self._complaint = edited, ""
        self._metrics.settings_stale.set(0)
        if default is not None:
            self._source, self._name = source, default.name
        if is_news:
            self._metrics.settings_reloads.labels(result="loaded").inc()
            log_event("the settings file was read anew", file=str(edited.file.path), policy=self._name)
            began_with = self._began_with or before
            if waiting := edited.differs_from(began_with):
                log_warning("settings were edited that take effect at the next start", settings=waiting)
        return {} if default is None else {default.name: default}

    def _refuse(self, reasons: dict[str, str]) -> int:
        """Log each new error of policies once; return how many policies have a new error."""
        news: defaultdict[str, list[str]] = defaultdict(list)
        for name, reason in sorted(reasons.items()):
            if self._refused.get(name) != reason:
                news[reason].append(name)
        for reason, names in news.items():
            log_warning(
                "a policy cannot be used as it is now",
                reason=reason,
                as_before=[name for name in names if name in self.in_force.by_name],
                unusable=[name for name in names if name not in self.in_force.by_name],
            )
        self._refused = reasons
        self._metrics.policies_stale.set(len(reasons))
        return sum(map(len, news.values()))


def _warn_of_retired_keys(policies: Iterable[Policy]) -> None:
    for policy in policies:
        for _, reason in policy.retired():
            log_warning("a policy has a key that does nothing", policy=policy.name, reason=reason)
