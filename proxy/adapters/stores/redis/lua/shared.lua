--- shared
-- What every script begins with.

-- Those of the sessions that an entry of the tips names that are still there; of many, the first `most`. One that
-- is named by a joint is followed by what was said there: `sid/chain hash in hex`.
local function alive(bucket, holders, most)
  local living = {}
  for holder in string.gmatch(holders or '', '[^,]+') do
    if #living == most then break end
    local sid = string.match(holder, '^[^/]*')
    if redis.call('EXISTS', bucket .. sid) == 1 then living[#living + 1] = holder end
  end
  return living
end

-- Whether a record may be replaced: it is of our own kind, or damaged, for none begins with 0, 255 or a
-- printable character. One of another release, or sealed with another secret, stays as it is.
local function is_ours(record)
  local first = string.byte(record) or 0
  if first == 0 or first == 255 or (first >= 32 and first < 127) then return true end
  for _, beginning in ipairs(OURS) do
    if string.sub(record, 1, #beginning) == beginning then return true end
  end
  return false
end

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Who has the lease on writing a summary ('' for nobody), and until when.
local function holder(session, address)
  local token, ends = string.match(redis.call('HGET', session .. CLAIMS, address) or '', '^(%S+) (%d+)$')
  if not token or tonumber(ends) <= now() then return '', 0 end
  return token, tonumber(ends)
end

-- All keys of a session live equally long; that there was one is known for a while after.
local function renew(session, ttl)
  redis.call('PEXPIRE', session, ttl)
  redis.call('PEXPIRE', session .. WAS, ttl + REMEMBERED)
  for _, part in ipairs(PARTS) do redis.call('PEXPIRE', session .. part, ttl) end
  for _, lane in ipairs(redis.call('SMEMBERS', session .. LANES)) do
    redis.call('PEXPIRE', session .. EPOCHS .. lane, ttl)
  end
end

-- Add up amounts, pairs of arguments from this place on, unless this group of the writer's was added before.
local function add_group(bill, writer, number, first)
  if tonumber(redis.call('HGET', bill, WRITER .. writer) or 0) >= tonumber(number) then return end
  redis.call('HSET', bill, WRITER .. writer, number)
  for i = first, #ARGV, 2 do redis.call('HINCRBY', bill, ARGV[i], ARGV[i + 1]) end
end

-- The version of a scope of memories; 0 where there is none.
local function version_of(scope) return tonumber(redis.call('HGET', scope, 'version')) or 0 end

-- The one after, written and as text. The first is higher than any that there was.
local function next_version(scope, version)
  local time = redis.call('TIME')
  local first = version == 0
  local new = string.format('%.0f', first and time[1] * 1000000 + time[2] or version + 1)
  redis.call('HSET', scope, 'version', new)
  if first then redis.call('HSET', scope, 'floor', new) end
  return new
end

-- Note when a session had a turn; of too many those that had theirs longest ago are no more known.
local function note_thread(scope, thread, at)
  redis.call('ZADD', scope .. THREADS, 'GT', at, thread)
  local over = redis.call('ZCARD', scope .. THREADS) - MOST_THREADS
  if over <= 0 then return end
  local oldest = redis.call('ZPOPMIN', scope .. THREADS, over)
  for i = 1, #oldest, 2 do redis.call('HDEL', scope .. READ, oldest[i]) end
end

-- A thread's own scope ends some time after its last change; others do not.
local function renew_scope(scope, ttl)
  if ttl == 0 then return end
  redis.call('PEXPIRE', scope, ttl)
  for _, part in ipairs(SCOPE_PARTS) do redis.call('PEXPIRE', scope .. part, ttl) end
end
