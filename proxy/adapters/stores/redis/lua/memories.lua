--- memory_note
-- Note that a session has had a turn, in a scope that begins to be there where it was not.
local scope = KEYS[1]
local thread, at, ttl, about, workspace = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
if version_of(scope) == 0 then next_version(scope, 0) end
if redis.call('HSETNX', scope, 'about', about) == 1 then redis.call('HSET', scope, 'workspace', workspace) end
note_thread(scope, thread, at)
renew_scope(scope, ttl)

--- memory_change
-- Write to a scope of memories, if it still has the version that was seen; answer the new one, or 0.
local scope, seen, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])
local version = version_of(scope)
if version ~= tonumber(seen) then return 0 end
version = next_version(scope, version)

local last = 2
local function take()
  last = last + 1
  return ARGV[last]
end

local about, workspace, texts = take(), take(), take()
if about ~= '' then redis.call('HSET', scope, 'about', about, 'workspace', workspace) end
if texts ~= '' then redis.call('HSET', scope, 'texts', texts) end

for _ = 1, tonumber(take()) do
  local id, item = take(), take()
  if item ~= '' then
    redis.call('HSET', scope .. ITEMS, id, item)
    redis.call('ZADD', scope .. CHANGED, version, id)
    redis.call('ZREM', scope .. GONE, id)
  elseif redis.call('HDEL', scope .. ITEMS, id) == 1 then
    redis.call('ZREM', scope .. CHANGED, id)
    redis.call('ZADD', scope .. GONE, version, id)
  end
end
local over = redis.call('ZCARD', scope .. GONE) - MOST_TOMBSTONES
if over > 0 then
  local dropped = redis.call('ZPOPMIN', scope .. GONE, over)
  redis.call('HSET', scope, 'floor', dropped[#dropped])
end

for _ = 1, tonumber(take()) do
  local id, archived = take(), take()
  if archived ~= '' then redis.call('HSET', scope .. ARCHIVE, id, archived)
  else redis.call('HDEL', scope .. ARCHIVE, id) end
end

for _ = 1, tonumber(take()) do
  local thread, at, read = take(), take(), take()
  if read ~= '' then
    redis.call('HSET', scope .. READ, thread, read)
    note_thread(scope, thread, at)
  else
    redis.call('HDEL', scope .. READ, thread)
    redis.call('ZREM', scope .. THREADS, thread)
  end
end

-- A log is a row of events, each after a letter for its kind and its length. Of score updates that follow each other
-- it holds the first and the last; of too many events the first and the newest.
local function rows(log)
  local all, at = {}, 1
  while at + 4 <= #log do
    local next = at + 5 + struct.unpack('>I4', log, at + 1)
    if next - 1 > #log then break end  -- it is damaged from here on
    all[#all + 1] = string.sub(log, at, next - 1)
    at = next
  end
  return all
end
local function is_score(event) return event and string.sub(event, 1, 1) == SCORE end
local newest = 0
for _ = 1, tonumber(take()) do
  local id, at, is_over, event = take(), tonumber(take()), take() == '1', take()
  newest = math.max(newest, at)
  local log = rows(redis.call('HGET', scope .. LOG, id) or '')
  local is_on = is_score(event) and is_score(log[#log]) and is_score(log[#log - 1])
  log[is_on and #log or #log + 1] = event
  while #log > MOST_LOGGED do table.remove(log, 2) end
  redis.call('HSET', scope .. LOG, id, table.concat(log))
  redis.call('ZREM', scope .. (is_over and LOGGED or DELETED), id)
  redis.call('ZADD', scope .. (is_over and DELETED or LOGGED), is_over and at or version, id)
end
-- Releases before have entered deleted items by version, which is about a time in microseconds.
local before = newest - DELETED_LOG_LIFE
for _, range in ipairs({{'-inf', before}, {1e14, before * 1e6}}) do
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', scope .. DELETED, range[1], range[2])) do
    redis.call('ZREM', scope .. DELETED, id)
    redis.call('HDEL', scope .. LOG, id)
  end
end
for part, most in pairs({[LOGGED] = MOST_LOGS, [DELETED] = MOST_DELETED_LOGS}) do
  local many = redis.call('ZCARD', scope .. part) - most
  local oldest = many > 0 and redis.call('ZPOPMIN', scope .. part, many) or {}
  for i = 1, #oldest, 2 do redis.call('HDEL', scope .. LOG, oldest[i]) end
end

renew_scope(scope, ttl)
return tonumber(version)

--- memory_news
-- Read a scope and what of its items is new, for who has read the others: nothing where that cannot be told, or is
-- much. Writes nothing: a full server and a replica run it.
local scope, since = KEYS[1], ARGV[1]
local fields = redis.call('HMGET', scope, unpack(SCOPE_FIELDS))
local version, floor = tonumber(fields[1]) or 0, tonumber(fields[2]) or 0
if tonumber(since) < floor or tonumber(since) > version then return false end
local changed = redis.call('ZRANGEBYSCORE', scope .. CHANGED, '(' .. since, '+inf', 'LIMIT', 0, NEWS_ITEMS + 1)
if #changed > NEWS_ITEMS then return false end
local items = #changed > 0 and redis.call('HMGET', scope .. ITEMS, unpack(changed)) or {}
return {fields, changed, items, redis.call('ZRANGEBYSCORE', scope .. GONE, '(' .. since, '+inf')}

--- memory_forget
-- Delete every key of a scope; answer how many there were, and in which workspace it lay.
local scope = KEYS[1]
local workspace = redis.call('HGET', scope, 'workspace')
local count = redis.call('UNLINK', scope)
for _, part in ipairs(SCOPE_PARTS) do count = count + redis.call('UNLINK', scope .. part) end
redis.call('DEL', scope .. CLAIMS)
return {count, workspace}

--- memory_index
-- Enter a scope into the index of all, with a ttl if it ends, or without any take it out; and let the index forget
-- some of those that have ended.
local index, ends = KEYS[1], KEYS[1] .. ENDS
local scope, ttl = ARGV[1], tonumber(ARGV[2])
local ended = redis.call('ZRANGEBYSCORE', ends, '-inf', now(), 'LIMIT', 0, 100)
if ttl < 0 then ended[#ended + 1] = scope end
for _, each in ipairs(ended) do
  redis.call('ZREM', index, each)
  redis.call('ZREM', ends, each)
end
if ttl < 0 then return end
local time = redis.call('TIME')
redis.call('ZADD', index, time[1] * 1000000 + time[2], scope)
if ttl > 0 then redis.call('ZADD', ends, now() + ttl, scope) end

--- memory_channel
-- Note that a channel lies in a workspace, or no more.
redis.call(ARGV[2] == '1' and 'SADD' or 'SREM', KEYS[1] .. CHANNELS, ARGV[1])
