"""Owns who asks: the key of a request, what it may use, and which policies hold for it."""

from __future__ import annotations

from collections.abc import Mapping

from turnscript.core.errors import Unauthorized
from turnscript.gateway.config import Config, Policy
from turnscript.gateway.headers import credentials
from turnscript.gateway.keys import Key, Keys
from turnscript.gateway.limits import Budget, Gate, Tally
from turnscript.gateway.reach import check_page

ANYBODY = "anybody"


class Caller:
    """Somebody who asks, with what is running and used up in this name."""

    def __init__(self, key: Key | None, config: Config) -> None:
        limits = self.limits = config.limits if key is None else key.limits(config.limits)
        self.key = key
        self.name = ANYBODY if key is None else key.name
        self.policy: Policy = config.policy if key is None else key.policy(config.policy)
        self.gate = Gate(limits, limits.running, f"the key {self.name!r}" if key else "the gateway")
        self.budget = Budget(limits)
        self.tally = None if key is None else Tally(key.name)


class Callers:
    """All who have asked. `before`: those of the configuration before this one; whose limits and policies are still the
    same keep what they have used up, and what is running."""

    def __init__(self, config: Config, before: Callers | None = None) -> None:
        self._config = config
        self._keys = None if config.server.keys is None else Keys(config.server.keys)
        self._known: dict[str, Caller] = {}
        self._anybody = Caller(None, config)
        if before is not None:
            self._anybody = self._still(before._anybody)
            self._known = {id_: self._still(caller) for id_, caller in before._known.items()}

    def _still(self, caller: Caller) -> Caller:
        fresh = Caller(caller.key, self._config)
        return caller if (fresh.limits, fresh.policy) == (caller.limits, caller.policy) else fresh

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """Who asks. Raises Unauthorized where keys are configured and neither of those offered is one, and Forbidden
        where none are and a page of another host asks."""
        if self._keys is None:
            if not self._config.server.public:
                check_page(headers, self._config.server.origins)
            return self._anybody
        bearer, api_key = credentials(headers)
        key = self._keys.check(bearer, api_key)
        if key is None:
            what = "is not known" if bearer or api_key else "is missing"
            raise Unauthorized(f"the API key {what}; send it as `Authorization: Bearer` or as `x-api-key`")
        known = self._known.get(key.id)
        if known is None or known.key != key:
            known = self._known[key.id] = Caller(key, self._config)
        return known

    def reload(self) -> None:
        """Read the file of keys again."""
        if self._keys is not None:
            self._keys.reload()
