-- Take a place in a session's line, or keep it; answer whose turn it is. A place whose lease has run out is
-- given up: its worker has died, or cannot reach the store. In a paused session no turn goes, and a compaction
-- goes before those that wait.
local session = KEYS[1]
local ticket, most, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local line, leases = session .. LINE, session .. LEASES
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function is_compaction(other) return other and string.sub(other, 1, #COMPACTOR) == COMPACTOR end
local is_paused = redis.call('HEXISTS', session, 'paused') == 1
local overtakes = is_paused and is_compaction(ticket)

local here = false
for _, other in ipairs(redis.call('LRANGE', line, 0, -1)) do
  local ends = tonumber(redis.call('HGET', leases, other) or 0)
  if other == ticket then
    here = true
  elseif ends <= now or ends > now + 10 * lease then  -- the second: the server's clock was set back
    redis.call('LREM', line, 1, other)
    redis.call('HDEL', leases, other)
  end
end
if not here then
  if redis.call('LLEN', line) > most and not overtakes then return 'full' end
  redis.call('RPUSH', line, ticket)
end
if overtakes and not is_compaction(redis.call('LINDEX', line, 0)) then
  redis.call('LREM', line, 1, ticket)
  redis.call('LPUSH', line, ticket)
end
redis.call('HSET', leases, ticket, now + lease)
redis.call('PEXPIRE', line, lease)
redis.call('PEXPIRE', leases, lease)
local first = redis.call('LINDEX', line, 0) == ticket
return first and (overtakes or not is_paused) and 'go' or 'wait'
