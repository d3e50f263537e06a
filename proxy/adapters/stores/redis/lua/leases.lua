--- claim
-- Take or renew the lease on writing a summary, or on a scope's work; answer whether this token has it. One that has
-- run out is anybody's: its worker has died, or cannot reach the store.
local session = KEYS[1]
local address, token, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local other, ends = holder(session, address)
local clock_was_set_back = ends > now() + 10 * lease
if other ~= '' and other ~= token and not clock_was_set_back then return 0 end
for _, each in ipairs(redis.call('HKEYS', session .. CLAIMS)) do
  if holder(session, each) == '' then redis.call('HDEL', session .. CLAIMS, each) end
end
redis.call('HSET', session .. CLAIMS, address, token .. ' ' .. string.format('%.0f', now() + lease))
redis.call('PEXPIRE', session .. CLAIMS, math.max(lease, redis.call('PTTL', session .. CLAIMS)))
return 1

--- release
-- Give up the lease on writing a summary, if it is still held.
local session = KEYS[1]
if holder(session, ARGV[1]) == ARGV[2] then redis.call('HDEL', session .. CLAIMS, ARGV[1]) end

--- keep_summary
-- Keep a summary, and the session with it; answer whether it was kept. It is not where the session was deleted
-- while it was being written, nor where its writer has lost its lease to another, who has it or has written,
-- nor where one stands that is not ours.
local session = KEYS[1]
local address, summary, ttl, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if redis.call('EXISTS', session) == 0 and redis.call('EXISTS', session .. WAS) == 1 then return 0 end
local stands = redis.call('HGET', session .. SUMMARIES, address)
if stands and not is_ours(stands) then return 0 end
local other = holder(session, address)
if token ~= '' and token ~= other then
  if other ~= '' or stands then return 0 end
end
redis.call('HSET', session .. SUMMARIES, address, summary)
if token ~= '' then redis.call('HDEL', session .. CLAIMS, address) end
renew(session, ttl)
return 1

--- stand
-- Take a place in a session's line, or keep it; answer whose turn it is. A place whose lease has run out is
-- given up: its worker has died, or cannot reach the store. In a paused session no turn goes, and a compaction
-- goes before those that wait.
local session = KEYS[1]
local ticket, most, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local line, leases = session .. LINE, session .. LEASES
local now = now()

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

--- renew_lease
-- Keep a place in a session's line for another while; one that was given up stays so.
local session = KEYS[1]
local ticket, lease = ARGV[1], tonumber(ARGV[2])
local line, leases = session .. LINE, session .. LEASES
if redis.call('HEXISTS', leases, ticket) == 0 then return end
redis.call('HSET', leases, ticket, now() + lease)
redis.call('PEXPIRE', line, lease)
redis.call('PEXPIRE', leases, lease)

--- leave
-- Give up a place in a session's line.
local session = KEYS[1]
redis.call('LREM', session .. LINE, 1, ARGV[1])
redis.call('HDEL', session .. LEASES, ARGV[1])
