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
