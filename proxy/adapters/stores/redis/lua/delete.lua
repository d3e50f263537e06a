-- Forget a session, all but that there was one; answer whether there was, and under which tag its bucket is noted.
local session, tips, bucket = KEYS[1], KEYS[2], KEYS[3]
local sid = ARGV[1]
local was, first = redis.call('EXISTS', session), redis.call('HGET', session, 'first')
for _, lane in ipairs(redis.call('SMEMBERS', session .. LANES)) do redis.call('DEL', session .. EPOCHS .. lane) end
local parts = {NODES, TEXTS, COUNTS, PARTIAL, BESIDE, SUMMARIES, LANES, HIDDEN, HIDES, BILL, LINE, LEASES, CLAIMS}
for _, part in ipairs(parts) do
  redis.call('DEL', session .. part)
end
redis.call('DEL', session)
local entries = redis.call('HGETALL', tips)
for i = 1, #entries, 2 do
  if string.find(entries[i + 1], sid, 1, true) and #alive(bucket, entries[i + 1], 1) == 0 then
    redis.call('HDEL', tips, entries[i])
  end
end
if was == 1 then redis.call('SET', session .. WAS, 1, 'PX', REMEMBERED) end
return {was, first}
