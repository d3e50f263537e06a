-- Note under the joint of a first answer in which bucket its session is kept, or without a ttl no longer. Of two
-- there is no third: where there are several it is none.
local first, tag, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])
if ttl == 0 then return redis.call('SREM', first, tag) end
if redis.call('SISMEMBER', first, tag) == 0 and redis.call('SCARD', first) < 2 then redis.call('SADD', first, tag) end
if redis.call('PTTL', first) < ttl then redis.call('PEXPIRE', first, ttl) end
