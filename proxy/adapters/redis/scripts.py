"""The Lua scripts: each one a step that the server takes whole, and a function with its types.

A script is handed the session's key (or its bucket's) and derives the names of the parts by the suffixes of
:mod:`proxy.adapters.redis.keys`: which session it is may come out of the script itself, and all of them share
a hash tag, so a cluster runs them too. Records are opaque here. A server that has forgotten a script
(restarted, `SCRIPT FLUSH`) is told it again by redis-py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from redis.asyncio import Redis

from proxy.adapters.redis import keys
from proxy.ports import SessionKey

Argument = str | bytes | int | float

MESSAGE: Final = "message"
ANSWER: Final = "answer"
PARTIAL: Final = "partial"

_NAMES = f"""
local NODES, COUNTS, PARTIAL = '{keys.NODES}', '{keys.COUNTS}', '{keys.PARTIAL}'
local SUMMARIES, LANES, EPOCHS = '{keys.SUMMARIES}', '{keys.LANES}', '{keys.EPOCHS}'
"""

_RENEW = """
local function renew(session, ttl)
  redis.call('PEXPIRE', session, ttl)
  for _, part in ipairs({NODES, COUNTS, PARTIAL, SUMMARIES, LANES}) do
    redis.call('PEXPIRE', session .. part, ttl)
  end
  for _, lane in ipairs(redis.call('SMEMBERS', session .. LANES)) do
    redis.call('PEXPIRE', session .. EPOCHS .. lane, ttl)
  end
end
"""

_FIND = """
local tips, bucket = KEYS[1], KEYS[2]
local sid, lane, seen_sid, seen = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local first = 6                       -- of the newest chain hashes; the uncounted follow them
local last = first + ARGV[5] - 1

local function values(key, from, to)  -- in portions: Lua's stack holds about 8,000
  local all = {}
  for start = from, to, 1000 do
    local portion = redis.call('HMGET', key, unpack(ARGV, start, math.min(start + 999, to)))
    for i = 1, #portion do all[#all + 1] = portion[i] end
  end
  return all
end

if sid == '' then
  for _, holder in ipairs(values(tips, first, last)) do
    if holder and redis.call('EXISTS', bucket .. holder) == 1 then sid = holder break end
  end
  if sid == '' then return false end
end

local session = bucket .. sid
local known = false
for i, count in ipairs(values(session .. COUNTS, first, last)) do
  if count then known = ARGV[first + i - 1] break end
end
local start = 0
if seen_sid == sid then start = seen end
return {
  sid,
  redis.call('HMGET', session, 'record', 'created', 'turns', 'tip'),
  known,
  values(session .. COUNTS, last + 1, #ARGV),
  redis.call('LRANGE', session .. EPOCHS .. lane, start, -1),
}
"""

_BEGIN_EPOCH = """
local session = KEYS[1]
local lane, seen, epoch, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local epochs = session .. EPOCHS .. lane
if redis.call('LLEN', epochs) == tonumber(seen) then
  redis.call('RPUSH', epochs, epoch)
  redis.call('SADD', session .. LANES, lane)
end
renew(session, ttl)
return redis.call('LRANGE', epochs, seen, -1)
"""

_RECORD = """
local session, tips, bucket = KEYS[1], KEYS[2], KEYS[3]
local sid, ttl, record, created, tip = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local headerless = ARGV[6] == '1'
local first = 8 + ARGV[7]             -- of the nodes, four arguments each; the outer parents stand before

local joined = false
for i = 8, first - 1 do
  joined = joined or redis.call('HEXISTS', session .. NODES, ARGV[i]) == 1
end

local function write(hash, node, tokens, kind)
  local new = redis.call('HSETNX', session .. NODES, hash, node) == 1
  if not new and kind == 'answer' and redis.call('SREM', session .. PARTIAL, hash) == 1 then
    redis.call('HSET', session .. NODES, hash, node)
    new = true
  end
  if new then redis.call('HSET', session .. COUNTS, hash, tokens) end
  if new and kind == 'partial' then redis.call('SADD', session .. PARTIAL, hash) end
  return new
end

local fresh, completed = {}, 0
for i = first, #ARGV, 4 do
  local hash, kind = ARGV[i], ARGV[i + 3]
  if write(hash, ARGV[i + 1], ARGV[i + 2], kind) then
    fresh[hash] = true
    if kind == 'answer' then completed = completed + 1 end
  end
end

if record ~= '' then
  redis.call('HSETNX', session, 'created', created)
  redis.call('HINCRBY', session, 'turns', completed)
  if next(fresh) or redis.call('HEXISTS', session, 'record') == 0 then
    redis.call('HSET', session, 'record', record)
  end
  local had = redis.call('HEXISTS', session, 'tip') == 1
  if tip ~= '' and (not had or (joined and fresh[tip])) then
    redis.call('HSET', session, 'tip', tip)
  end
end
renew(session, ttl)

if not headerless then return end
for i = first, #ARGV, 4 do
  if ARGV[i + 3] ~= 'message' then
    local holder = redis.call('HGET', tips, ARGV[i])
    if not holder or redis.call('EXISTS', bucket .. holder) == 0 then
      redis.call('HSET', tips, ARGV[i], sid)
    end
  end
end
local sample = redis.call('HRANDFIELD', tips, 4, 'WITHVALUES')
for i = 1, #sample, 2 do
  if redis.call('EXISTS', bucket .. sample[i + 1]) == 0 then redis.call('HDEL', tips, sample[i]) end
end
if redis.call('PTTL', tips) < tonumber(ttl) then redis.call('PEXPIRE', tips, ttl) end
"""

_KEEP_SUMMARY = """
local session = KEYS[1]
redis.call('HSET', session .. SUMMARIES, ARGV[1], ARGV[2])
renew(session, ARGV[3])
"""

Fields = list[bytes | None]
"""A session's `record`, `created`, `turns` and `tip`."""


@dataclass(frozen=True, slots=True)
class FoundFields:
    """What `find` answers, still encoded; counts in the order asked for."""

    sid: bytes
    session: Fields
    known: bytes | None
    counts: list[bytes | None]
    epochs: list[bytes]


@dataclass(frozen=True, slots=True)
class NodeFields:
    """A node on its way into `record`: encoded, and of kind MESSAGE, ANSWER or PARTIAL."""

    hash: bytes
    node: bytes
    tokens: int
    kind: str


@dataclass(frozen=True, slots=True)
class TurnFields:
    """A turn, or a piece of it, on its way into `record`."""

    record: bytes
    """The session's record; empty for a piece that writes nodes alone."""
    created: float
    tip: bytes
    """Where the tip may move; empty where it stays."""
    headerless: bool
    outer_parents: Sequence[bytes]
    """Parents of the whole turn's nodes that are none of its nodes."""
    nodes: Sequence[NodeFields]


class _Script(Protocol):
    """redis-py's registered script."""

    async def __call__(self, keys: Sequence[str], args: Sequence[Argument]) -> Any: ...


class Scripts:
    """The scripts, as one client runs them. `ttl` is in milliseconds throughout."""

    def __init__(self, client: Redis) -> None:
        def script(lua: str) -> _Script:
            return cast("_Script", client.register_script(_NAMES + _RENEW + lua))

        self._find = script(_FIND)
        self._begin_epoch = script(_BEGIN_EPOCH)
        self._record = script(_RECORD)
        self._keep_summary = script(_KEEP_SUMMARY)

    async def find(
        self,
        tag: str,
        sid: str | None,
        *,
        lane: str,
        seen: tuple[str, int],
        newest: Sequence[bytes],
        uncounted: Sequence[bytes],
    ) -> FoundFields | None:
        """Find the session, by `sid` or by the newest hash among the tips, and read what a request needs.

        None where the chain belongs to no session. Writes nothing: a full server and a replica run it.
        """
        args = (sid or "", lane, *seen, len(newest), *newest, *uncounted)
        answer = await self._find([keys.tips(tag), keys.bucket(tag)], args)
        return None if answer is None else FoundFields(*answer)

    async def begin_epoch(
        self, key: SessionKey, lane: str, *, seen: int, epoch: bytes, ttl: int
    ) -> list[bytes]:
        """Append to the lane if it holds `seen` epochs, and answer all from there on, whoever wrote them."""
        return cast("list[bytes]", await self._begin_epoch([keys.session(key)], (lane, seen, epoch, ttl)))

    async def record(self, key: SessionKey, turn: TurnFields, *, ttl: int) -> None:
        """Write nodes that are new, then the session's own fields, then the tips.

        The first bytes of a node stay, but a completed answer takes the place of one that was cut off.
        `turns` counts completed answers that were new. The tip moves where the new one is news, and an outer
        parent was known before; or where there was none. Where all was there before, nothing moves.
        """
        outer = (len(turn.outer_parents), *turn.outer_parents)
        nodes = (field for node in turn.nodes for field in (node.hash, node.node, node.tokens, node.kind))
        args = (key.sid, ttl, turn.record, turn.created, turn.tip, int(turn.headerless), *outer, *nodes)
        await self._record([keys.session(key), keys.tips(key.tag), keys.bucket(key.tag)], args)

    async def keep_summary(self, key: SessionKey, address: str, summary: bytes, *, ttl: int) -> None:
        """Keep a summary, and the session with it."""
        await self._keep_summary([keys.session(key)], (address, summary, ttl))
