--- find
-- Find a session, by its name or by the newest hash among the tips, and read what a request needs. Where
-- several sessions gave the same answer to the same words it is none of them: they may be somebody else's. Found by
-- a joint, the answer tells what was said there; a joint of several says nothing, nor do those before it.
-- Writes nothing: a full server and a replica run it.
local tips, bucket = KEYS[1], KEYS[2]
local sid, lane, seen_sid, seen = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local hidden_sid, hidden_seen, held = ARGV[5], ARGV[6], ARGV[7]
local newest, uncounted = ARGV[8], ARGV[9]  -- chain hashes, one after the other
local joints = ARGV[10]               -- one for each of the newest (HASH zeros for none), or none at all

local function values(key, hashes)
  local all, portion = {}, {}
  for i = 1, #hashes, HASH do
    portion[#portion + 1] = string.sub(hashes, i, i + HASH - 1)
    if #portion == 1000 or i + HASH > #hashes then  -- Lua's stack holds about 8,000
      for _, value in ipairs(redis.call('HMGET', key, unpack(portion))) do all[#all + 1] = value end
      portion = {}
    end
  end
  return all
end

local joint, said = false, false
if sid == '' then
  local joined = values(tips, joints)
  for i, holders in ipairs(values(tips, newest)) do
    local living = alive(bucket, holders, 2)
    if #living == 1 then sid = living[1] end
    if #living > 0 then break end
    living = alive(bucket, joined[i], 2)
    if #living == 1 then
      joint = string.sub(joints, (i - 1) * HASH + 1, i * HASH)
      sid, said = string.match(living[1], '^([^/]*)/(%x*)')
      break
    end
    if #living > 0 then joined = {} end
  end
  if sid == '' then return false end
end

local session = bucket .. sid
if joint then
  local hash = string.gsub(said, '%x%x', function(digits) return string.char(tonumber(digits, 16)) end)
  said = {joint, hash, redis.call('HGET', session .. NODES, hash)}
end
local known = false
local few = 8 * HASH                  -- the newest known is nearly always among them
for _, hashes in ipairs({string.sub(newest, 1, few), string.sub(newest, few + 1)}) do
  for i, count in ipairs(values(session .. COUNTS, hashes)) do
    if count and not known then known = string.sub(hashes, (i - 1) * HASH + 1, i * HASH) end
  end
  if known then break end
end
local start, hidden_start = 0, 0
if seen_sid == sid then start = seen end
if hidden_sid == sid then hidden_start = hidden_seen end
local fields = redis.call('HMGET', session, 'injected', unpack(FIELDS))
local injected = table.remove(fields, 1)
local is_news = injected and injected ~= held
return {
  sid,
  fields,
  known,                              -- the newest of the asked chain hashes that it holds
  values(session .. COUNTS, uncounted),
  redis.call('LRANGE', session .. EPOCHS .. lane, start, -1),
  fields[1] and 0 or redis.call('EXISTS', session .. WAS),
  redis.call('LRANGE', session .. HIDDEN, hidden_start, -1),
  injected,
  is_news and redis.call('HGET', session, 'injection'),
  redis.call('LINDEX', session .. LINE, 0),  -- whose turn it is in its queue
  said,                               -- the joint by which it was found, the message that was answered there
}
