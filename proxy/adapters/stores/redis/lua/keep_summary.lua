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
