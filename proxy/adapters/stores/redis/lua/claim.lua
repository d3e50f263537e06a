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
