--- ping
-- Show that scripts run for us, may ask for the time, and may write, read and delete values of every type.
local probe = KEYS[1]
redis.call('DEL', probe)
for _, command in ipairs({
  {'HSET', 'a', ''}, {'HMGET', 'a'}, {'HGETALL'}, {'HDEL', 'a'},
  {'SADD', 'a'}, {'SMEMBERS'}, {'SREM', 'a'},
  {'ZADD', 0, 'a'}, {'ZRANGE', 0, -1}, {'ZREM', 'a'},
  {'RPUSH', 'a'}, {'LRANGE', 0, -1}, {'PEXPIRE', 1000}, {'UNLINK'},
}) do
  local answer = redis.pcall(command[1], probe, unpack(command, 2))
  if type(answer) == 'table' and answer.err then
    redis.call('DEL', probe)
    return answer
  end
end
return now()

--- claim
-- Take or renew a lease on writing a summary, or on a scope's work. Returns 1 if the token holds it now. A lease
-- that has run out may be taken by anybody: its worker has died, or cannot reach the store.
local session = KEYS[1]
local address, token, lease, longest = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4] or 0)
local holder, ends = holder_of(session, address)
local clock_was_set_back = ends > now() + math.max(10 * lease, longest)
if holder ~= '' and holder ~= token and not clock_was_set_back then return 0 end
for _, other in ipairs(redis.call('HKEYS', session .. CLAIMS)) do
  if holder_of(session, other) == '' then redis.call('HDEL', session .. CLAIMS, other) end
end
redis.call('HSET', session .. CLAIMS, address, token .. ' ' .. string.format('%.0f', now() + lease))
redis.call('PEXPIRE', session .. CLAIMS, math.max(lease, redis.call('PTTL', session .. CLAIMS)))
return 1

--- release
-- Give up a lease, if the token still holds it.
local session = KEYS[1]
local address, token = ARGV[1], ARGV[2]
if holder_of(session, address) == token then redis.call('HDEL', session .. CLAIMS, address) end

--- keep_summary
-- Store a summary. Returns 1 if it is stored. It is not stored if the session was deleted
-- while the summary was being written, if another worker has taken over the lease or has written the summary
-- since, or if the summary that is there already is in a form that this release may not replace.
local session = KEYS[1]
local address, summary, ttl, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if redis.call('EXISTS', session) == 0 and redis.call('EXISTS', session .. WAS) == 1 then return 0 end
local existing = redis.call('HGET', session .. SUMMARIES, address)
if existing and not is_ours(existing) then return 0 end
local holder = holder_of(session, address)
if token ~= '' and token ~= holder then
  if holder ~= '' or existing then return 0 end
end
redis.call('HSET', session .. SUMMARIES, address, summary)
if token ~= '' then redis.call('HDEL', session .. CLAIMS, address) end
keep(session, ttl)
return 1

--- take_place
-- Take a place in a session's queue, or renew its lease. Returns `go` if the ticket may go now, else `wait`, or
-- `full` if too many are waiting. Places whose lease has run out are removed: their worker has died, or cannot
-- reach the store. While a session is paused no turn may go, and a compaction goes before all that wait.
local session = KEYS[1]
local ticket, most, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local queue, leases = session .. LINE, session .. LEASES
local now = now()

local function is_compaction(other) return other and string.sub(other, 1, #COMPACTOR) == COMPACTOR end
local is_paused = redis.call('HEXISTS', session, 'paused') == 1
local overtakes = is_paused and is_compaction(ticket)

local has_place = false
for _, other in ipairs(redis.call('LRANGE', queue, 0, -1)) do
  local ends = tonumber(redis.call('HGET', leases, other) or 0)
  if other == ticket then
    has_place = true
  elseif ends <= now or ends > now + 10 * lease then  -- the latter: the server's clock was set back
    redis.call('LREM', queue, 1, other)
    redis.call('HDEL', leases, other)
  end
end
if not has_place then
  if redis.call('LLEN', queue) > most and not overtakes then return 'full' end
  redis.call('RPUSH', queue, ticket)
end
if overtakes and not is_compaction(redis.call('LINDEX', queue, 0)) then
  redis.call('LREM', queue, 1, ticket)
  redis.call('LPUSH', queue, ticket)
end
redis.call('HSET', leases, ticket, now + lease)
redis.call('PEXPIRE', queue, lease)
redis.call('PEXPIRE', leases, lease)
local is_first = redis.call('LINDEX', queue, 0) == ticket
return is_first and (overtakes or not is_paused) and 'go' or 'wait'

--- renew_lease
-- Renew the lease of a place in a session's queue, if the place is still there.
local session = KEYS[1]
local ticket, lease = ARGV[1], tonumber(ARGV[2])
local queue, leases = session .. LINE, session .. LEASES
if redis.call('HEXISTS', leases, ticket) == 0 then return end
redis.call('HSET', leases, ticket, now() + lease)
redis.call('PEXPIRE', queue, lease)
redis.call('PEXPIRE', leases, lease)

--- leave
-- Give up a place in a session's queue.
local session = KEYS[1]
redis.call('LREM', session .. LINE, 1, ARGV[1])
redis.call('HDEL', session .. LEASES, ARGV[1])
