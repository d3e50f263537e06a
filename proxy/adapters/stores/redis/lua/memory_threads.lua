-- The sessions that a scope remembers of, those with the newest turns first, and what was read of each.
local scope, most = KEYS[1], tonumber(ARGV[1])
local threads, read = {}, {}
if most > 0 then threads = redis.call('ZREVRANGE', scope .. THREADS, 0, most - 1, 'WITHSCORES') end
for i = 1, #threads, 2 do read[#read + 1] = redis.call('HGET', scope .. READ, threads[i]) end
return {threads, read}
