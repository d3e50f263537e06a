-- Keep a place in a session's line for another while; one that was given up stays so.
local session = KEYS[1]
local ticket, lease = ARGV[1], tonumber(ARGV[2])
local line, leases = session .. LINE, session .. LEASES
if redis.call('HEXISTS', leases, ticket) == 0 then return end
local time = redis.call('TIME')
redis.call('HSET', leases, ticket, time[1] * 1000 + math.floor(time[2] / 1000) + lease)
redis.call('PEXPIRE', line, lease)
redis.call('PEXPIRE', leases, lease)
