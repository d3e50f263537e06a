-- Find a session, by its name or by the newest hash among the tips, and read what a request needs. Where
-- several sessions gave the same answer to the same words it is none of them: they may be somebody else's.
-- Writes nothing: a full server and a replica run it.
local tips, bucket = KEYS[1], KEYS[2]
local sid, lane, seen_sid, seen = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local hidden_sid, hidden_seen, held = ARGV[5], ARGV[6], ARGV[7]
local first = 9                       -- of the newest chain hashes; the uncounted follow them
local last = first + ARGV[8] - 1

local function values(key, from, to)  -- in portions: Lua's stack holds about 8,000
  local all = {}
  for start = from, to, 1000 do
    local portion = redis.call('HMGET', key, unpack(ARGV, start, math.min(start + 999, to)))
    for i = 1, #portion do all[#all + 1] = portion[i] end
  end
  return all
end

if sid == '' then
  for _, holders in ipairs(values(tips, first, last)) do
    local living = alive(bucket, holders)
    if #living == 1 then sid = living[1] end
    if #living > 0 then break end
  end
  if sid == '' then return false end
end

local session = bucket .. sid
local known = false
for i, count in ipairs(values(session .. COUNTS, first, last)) do
  if count then known = ARGV[first + i - 1] break end
end
local start, hidden_start = 0, 0
if seen_sid == sid then start = seen end
if hidden_sid == sid then hidden_start = hidden_seen end
local injected = redis.call('HGET', session, 'injected')
local is_news = injected and injected ~= held
return {
  sid,
  redis.call('HMGET', session, unpack(FIELDS)),
  known,
  values(session .. COUNTS, last + 1, #ARGV),
  redis.call('LRANGE', session .. EPOCHS .. lane, start, -1),
  redis.call('EXISTS', session .. WAS),
  redis.call('LRANGE', session .. HIDDEN, hidden_start, -1),
  injected,
  is_news and redis.call('HGET', session, 'injection'),
}
