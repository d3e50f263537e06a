--- shared
-- Functions that are put before every script.

-- An entry of the tips names sessions, separated by commas. Returns those that still exist, at most `most`.
-- In the entry of a joint each is written as `sid/hash`, with the chain hash (in hex) of the user message that
-- was answered there.
local function alive(bucket, holders, most)
  local living = {}
  for holder in string.gmatch(holders or '', '[^,]+') do
    if #living == most then break end
    local sid = string.match(holder, '^[^/]*')
    if redis.call('EXISTS', bucket .. sid) == 1 then living[#living + 1] = holder end
  end
  return living
end

-- Whether a record may be replaced: it begins like the records that this release writes, or it is damaged, for
-- no record begins with 0, 255 or a printable character. Records of another release, or encrypted with another
-- secret, stay as they are.
local function is_ours(record)
  local first = string.byte(record) or 0
  if first == 0 or first == 255 or (first >= 32 and first < 127) then return true end
  for _, beginning in ipairs(OURS) do
    if string.sub(record, 1, #beginning) == beginning then return true end
  end
  return false
end

-- The time of the server's clock, in milliseconds since 1970.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The token that holds a lease ('' if nobody does), and when the lease runs out.
local function holder_of(session, address)
  local token, ends = string.match(redis.call('HGET', session .. CLAIMS, address) or '', '^(%S+) (%d+)$')
  if not token or tonumber(ends) <= now() then return '', 0 end
  return token, tonumber(ends)
end

-- Renew all keys of a session, so that none outlives another; the mark that it existed lives longer.
local function renew(session, ttl)
  redis.call('PEXPIRE', session, ttl)
  redis.call('PEXPIRE', session .. WAS, ttl + REMEMBERED)
  for _, part in ipairs(PARTS) do redis.call('PEXPIRE', session .. part, ttl) end
  for _, lane in ipairs(redis.call('SMEMBERS', session .. LANES)) do
    redis.call('PEXPIRE', session .. EPOCHS .. lane, ttl)
  end
end

-- Let what was written beside a session's turns live as long as the session: only turns renew that. Before the first
-- turn all of it lives for `ttl`.
local function keep(session, ttl)
  local left = redis.call('PTTL', session)
  local has_turns = redis.call('HEXISTS', session, 'record') == 1
  if has_turns and left < 0 then return end  -- somebody took its end away: the next turn gives it one
  renew(session, has_turns and math.max(left, 1) or math.max(left, tonumber(ttl)))
end

-- Add amounts to a bill: names and amounts, in turn, from the argument number `first` on. A writer numbers its
-- groups, so that a group that is sent again is not added again.
local function add_group(bill, writer, number, first)
  if tonumber(redis.call('HGET', bill, WRITER .. writer) or 0) >= tonumber(number) then return end
  redis.call('HSET', bill, WRITER .. writer, number)
  for i = first, #ARGV, 2 do redis.call('HINCRBY', bill, ARGV[i], ARGV[i + 1]) end
end

-- The version of a scope of memories; 0 if it does not exist.
local function version_of(scope) return tonumber(redis.call('HGET', scope, 'version')) or 0 end

-- Give a scope its next version, and return that as text. It is the time in microseconds, or one more than the last:
-- so none is given twice, neither to a scope of the same name as one that was forgotten, nor after the store has lost
-- its newest writes. `versions` has the newest ones, each between commas.
local function next_version(scope, version)
  local time = redis.call('TIME')
  local next = string.format('%.0f', math.max(time[1] * 1000000 + time[2], version + 1))
  local versions = redis.call('HGET', scope, 'versions') or string.format(',%.0f,', version)
  redis.call('HSET', scope, 'version', next, 'versions', string.sub(versions, -VERSIONS) .. next .. ',')
  if version == 0 then redis.call('HSET', scope, 'floor', next) end
  return next
end

-- Note when a session had its last turn. If there are too many sessions, those unused for longest are dropped.
local function note_thread(scope, thread, at)
  redis.call('ZADD', scope .. THREADS, 'GT', at, thread)
  local surplus = redis.call('ZCARD', scope .. THREADS) - MOST_THREADS
  if surplus <= 0 then return end
  local oldest = redis.call('ZPOPMIN', scope .. THREADS, surplus)
  for i = 1, #oldest, 2 do redis.call('HDEL', scope .. READ, oldest[i]) end
end

-- Let all keys of a scope that expires, a thread's own scope, live for `ttl`. Other scopes have none (0).
local function renew_scope(scope, ttl)
  if ttl == 0 then return end
  redis.call('PEXPIRE', scope, ttl)
  for _, part in ipairs(SCOPE_PARTS) do redis.call('PEXPIRE', scope .. part, ttl) end
end

-- The suffixes of all keys that move with a session or a scope, except its own.
local function parts_of(name)
  local parts = {unpack(PARTS)}
  for _, part in ipairs(SCOPE_PARTS) do parts[#parts + 1] = part end
  for _, lane in ipairs(redis.call('SMEMBERS', name .. LANES)) do parts[#parts + 1] = EPOCHS .. lane end
  return parts
end

-- What tells whether a session or a scope has changed: its fields, its bill, how much its other parts hold, and which
-- of a scope's sessions had the newest turn. '' if there is none.
local function state_of(name)
  if redis.call('EXISTS', name) == 0 then return '' end
  local state = {}
  for _, part in ipairs({'', BILL}) do
    local fields, sorted = redis.call('HGETALL', name .. part), {}  -- in no order
    for i = 1, #fields, 2 do sorted[#sorted + 1] = #fields[i] .. ' ' .. fields[i] .. fields[i + 1] end
    table.sort(sorted)
    for _, field in ipairs(sorted) do state[#state + 1] = #field .. ' ' .. field end
  end
  local lengths = {hash = 'HLEN', set = 'SCARD', list = 'LLEN', zset = 'ZCARD'}
  for _, part in ipairs(parts_of(name)) do
    local length = lengths[redis.call('TYPE', name .. part).ok]
    if length then state[#state + 1] = part .. ' ' .. redis.call(length, name .. part) end
  end
  local newest = redis.call('ZRANGE', name .. THREADS, 0, 0, 'REV', 'WITHSCORES')
  state[#state + 1] = table.concat(newest, ' ')
  return redis.sha1hex(table.concat(state, ' '))
end

-- Delete a session or a scope, except what is not moved with it.
local function drop(name)
  for _, part in ipairs(parts_of(name)) do redis.call('UNLINK', name .. part) end
  redis.call('UNLINK', name)
end
