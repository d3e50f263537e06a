-- Keep what stands upstream for an answer, unless something does: the first written counts. Answer whether it is
-- kept, or was; not where the session was deleted meanwhile.
local session = KEYS[1]
local answer, hidden, ttl = ARGV[1], ARGV[2], ARGV[3]
if redis.call('EXISTS', session) == 0 and redis.call('EXISTS', session .. WAS) == 1 then return 0 end
if redis.call('SADD', session .. HIDES, answer) == 1 then redis.call('RPUSH', session .. HIDDEN, hidden) end
renew(session, ttl)
return 1
