--- memory_note
-- Note that a session has had a turn. The scope is created if it does not exist. Who has read it before it had
-- a record about itself learns of that by the next version.
local scope = KEYS[1]
local thread, at, ttl, about, workspace = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local is_new = redis.call('HSETNX', scope, 'about', about) == 1
if is_new then redis.call('HSET', scope, 'workspace', workspace) end
if is_new or version_of(scope) == 0 then next_version(scope, version_of(scope)) end
-- A turn that is noted late, or was timed by a clock that is behind, is as new to readers as any other.
local last = tonumber(redis.call('ZSCORE', scope .. THREADS, thread))
if last and tonumber(at) < last then at = string.format('%.6f', last + LATE) end
note_thread(scope, thread, at)
renew_scope(scope, ttl)

--- memory_change
-- Change a scope of memories, if it still has the version that the caller has read. Returns the new version, or
-- 0 if nothing was written, and how many milliseconds the scope has left (0 if it does not expire). ARGV after the
-- version: `about`, `workspace` and `texts` (empty if unchanged); then four lists, each after its length: items,
-- archived items, threads, and events of the log. An empty record deletes.
local scope, version_read = KEYS[1], ARGV[1]
local version = version_of(scope)
if version ~= tonumber(version_read) then return {0, 0} end
version = next_version(scope, version)

local last = 1
local function next_argument()
  last = last + 1
  return ARGV[last]
end

local about, workspace, texts = next_argument(), next_argument(), next_argument()
if about ~= '' then redis.call('HSET', scope, 'about', about, 'workspace', workspace) end
if texts ~= '' then redis.call('HSET', scope, 'texts', texts) end

for _ = 1, tonumber(next_argument()) do
  local id, item = next_argument(), next_argument()
  if item ~= '' then
    redis.call('HSET', scope .. ITEMS, id, item)
    redis.call('ZADD', scope .. CHANGED, version, id)
    redis.call('ZREM', scope .. GONE, id)
  elseif redis.call('HDEL', scope .. ITEMS, id) == 1 then
    redis.call('ZREM', scope .. CHANGED, id)
    redis.call('ZADD', scope .. GONE, version, id)
  end
end
local surplus = redis.call('ZCARD', scope .. GONE) - MOST_TOMBSTONES
if surplus > 0 then
  local dropped = redis.call('ZPOPMIN', scope .. GONE, surplus)
  redis.call('HSET', scope, 'floor', dropped[#dropped])
end

for _ = 1, tonumber(next_argument()) do
  local id, archived = next_argument(), next_argument()
  if archived ~= '' then redis.call('HSET', scope .. ARCHIVE, id, archived)
  else redis.call('HDEL', scope .. ARCHIVE, id) end
end

for _ = 1, tonumber(next_argument()) do
  local thread, at, read = next_argument(), next_argument(), next_argument()
  if read ~= '' then
    redis.call('HSET', scope .. READ, thread, read)
    note_thread(scope, thread, at)
  else
    redis.call('HDEL', scope .. READ, thread)
    redis.call('ZREM', scope .. THREADS, thread)
  end
end

-- A log is a sequence of events, each after a letter for its kind and its length. Of score updates in a row only
-- the first and the last are kept; of too many events, the first and the newest.
local function events_in(log)
  local events, at = {}, 1
  while at + 4 <= #log do
    local next = at + 5 + struct.unpack('>I4', log, at + 1)
    if next - 1 > #log then break end  -- the log is damaged from here on
    events[#events + 1] = string.sub(log, at, next - 1)
    at = next
  end
  return events
end
local function is_score(event) return event and string.sub(event, 1, 1) == SCORE end
local newest = 0
for _ = 1, tonumber(next_argument()) do
  local id, at = next_argument(), tonumber(next_argument())
  local is_deleted, event = next_argument() == '1', next_argument()
  newest = math.max(newest, at)
  local events = events_in(redis.call('HGET', scope .. LOG, id) or '')
  local replaces_last = is_score(event) and is_score(events[#events]) and is_score(events[#events - 1])
  events[replaces_last and #events or #events + 1] = event
  while #events > MOST_LOGGED do table.remove(events, 2) end
  redis.call('HSET', scope .. LOG, id, table.concat(events))
  redis.call('ZREM', scope .. (is_deleted and LOGGED or DELETED), id)
  redis.call('ZADD', scope .. (is_deleted and DELETED or LOGGED), is_deleted and at or version, id)
end
-- Older releases entered deleted items by the scope's version, which is about a time in microseconds.
local oldest_kept = newest - DELETED_LOG_LIFE
for _, range in ipairs({{'-inf', oldest_kept}, {1e14, oldest_kept * 1e6}}) do
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', scope .. DELETED, range[1], range[2])) do
    redis.call('ZREM', scope .. DELETED, id)
    redis.call('HDEL', scope .. LOG, id)
  end
end
for part, most in pairs({[LOGGED] = MOST_LOGS, [DELETED] = MOST_DELETED_LOGS}) do
  local surplus = redis.call('ZCARD', scope .. part) - most
  local oldest = surplus > 0 and redis.call('ZPOPMIN', scope .. part, surplus) or {}
  for i = 1, #oldest, 2 do redis.call('HDEL', scope .. LOG, oldest[i]) end
end

local left = redis.call('PTTL', scope)
left = left < 0 and 0 or math.max(left, 1)  -- 0: it has no end
renew_scope(scope, left)  -- no longer than it had, but with the parts that are new
return {tonumber(version), left}

--- memory_news
-- Read a scope, its items that have changed since a version, and the ids of those deleted since. Returns false if
-- that is no longer recorded, if the scope has not had that version (the store has lost it), or if too many have
-- changed. The script writes nothing, so it also runs on a server whose memory is full, and on a replica.
local scope, since = KEYS[1], ARGV[1]
local fields = redis.call('HMGET', scope, unpack(SCOPE_FIELDS))
local version, floor = tonumber(fields[1]) or 0, tonumber(fields[2]) or 0
if tonumber(since) < floor or tonumber(since) > version then return false end
local versions = redis.call('HGET', scope, 'versions') or ''
if since ~= fields[1] and not string.find(versions, ',' .. since .. ',', 1, true) then return false end
local changed = redis.call('ZRANGEBYSCORE', scope .. CHANGED, '(' .. since, '+inf', 'LIMIT', 0, NEWS_ITEMS + 1)
if #changed > NEWS_ITEMS then return false end
local items = #changed > 0 and redis.call('HMGET', scope .. ITEMS, unpack(changed)) or {}
return {fields, changed, items, redis.call('ZRANGEBYSCORE', scope .. GONE, '(' .. since, '+inf')}

--- memory_forget
-- Delete all keys of a scope. Returns how many there were, and the scope's workspace.
local scope = KEYS[1]
local workspace = redis.pcall('HGET', scope, 'workspace')
if type(workspace) == 'table' then workspace = false end  -- the name holds a key of another type: it goes too
local count = redis.call('UNLINK', scope)
for _, part in ipairs(SCOPE_PARTS) do count = count + redis.call('UNLINK', scope .. part) end
redis.call('DEL', scope .. CLAIMS)
return {count, workspace}

--- memory_index
-- Add a scope to the index of all scopes, with its ttl (0 if it does not expire), or remove it (ttl below 0),
-- unless it was added in the last so many milliseconds. Some of the scopes that have expired are removed at the
-- same time.
local index, ends = KEYS[1], KEYS[1] .. ENDS
local scope, ttl, young = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local removed = redis.call('ZRANGEBYSCORE', ends, '-inf', now(), 'LIMIT', 0, 100)
if ttl < 0 then
  local added = tonumber(redis.call('ZSCORE', index, scope) or 0)
  if young == 0 or added < (now() - young) * 1000 then removed[#removed + 1] = scope end
end
for _, other in ipairs(removed) do
  redis.call('ZREM', index, other)
  redis.call('ZREM', ends, other)
end
if ttl < 0 then return end
local time = redis.call('TIME')
redis.call('ZADD', index, time[1] * 1000000 + time[2], scope)
if ttl > 0 then redis.call('ZADD', ends, now() + ttl, scope) end

--- memory_channel
-- Note that a channel belongs to a workspace ('1'), or no longer does.
redis.call(ARGV[2] == '1' and 'SADD' or 'SREM', KEYS[1] .. CHANNELS, ARGV[1])
