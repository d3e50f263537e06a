--- find
-- Find a session and read everything that a request needs of it. The session is found by its sid if that is
-- given, else by the newest of the request's chain hashes that the tips know as an answer, or by its joint.
-- If several sessions gave the same answer to the same words, none is found: the request may belong to any of
-- them. If several have the same joint, that joint and all before it are ignored. Of a session found by a joint,
-- the user message that was answered there is returned too. Where none is found, only the place of the newest answer
-- or joint that several have is returned. The script writes nothing, so it also runs on a server whose memory is
-- full, and on a replica.
local tips, bucket = KEYS[1], KEYS[2]
local sid, lane = ARGV[1], ARGV[2]
local held_sid = ARGV[3]              -- the session of which the caller has something already:
local epochs_held, hidden_held = ARGV[4], ARGV[5]  -- so many epochs, and so many answers with hidden calls
local injection_held = ARGV[6]        -- digest of the injection that the caller has
local newest, uncounted = ARGV[7], ARGV[8]  -- concatenated chain hashes
local joints = ARGV[9]                -- a joint for each of `newest` (HASH zeros for none), or empty

-- The values of a hash's fields, whose names are concatenated chain hashes.
local function values(key, hashes)
  local all, portion = {}, {}
  for i = 1, #hashes, HASH do
    portion[#portion + 1] = string.sub(hashes, i, i + HASH - 1)
    if #portion == 1000 or i + HASH > #hashes then  -- the stack of Lua holds about 8,000 values
      for _, value in ipairs(redis.call('HMGET', key, unpack(portion))) do all[#all + 1] = value end
      portion = {}
    end
  end
  return all
end

local joint, user_message, place = false, false, false
if sid == '' then
  local by_joint = values(tips, joints)
  for i, holders in ipairs(values(tips, newest)) do
    local living = alive(bucket, holders, 2)
    if #living == 1 then sid = living[1] end
    if #living > 0 then
      place = place or i - 1
      break
    end
    living = alive(bucket, by_joint[i], 2)
    if #living == 1 then
      joint = string.sub(joints, (i - 1) * HASH + 1, i * HASH)
      sid, user_message = string.match(living[1], '^([^/]*)/(%x*)')
      place = place or i - 1
      break
    end
    if #living > 0 then  -- ambiguous, and so are those before it
      by_joint = {}
      place = place or i - 1
    end
  end
  if sid == '' then return place and {false, place} end
end

local session = bucket .. sid
if joint then
  local hash = string.gsub(user_message, '%x%x', function(digits) return string.char(tonumber(digits, 16)) end)
  user_message = {joint, hash, redis.call('HGET', session .. NODES, hash)}
end
local known = false
local few = 8 * HASH                  -- the newest known hash is nearly always among the first eight
for _, hashes in ipairs({string.sub(newest, 1, few), string.sub(newest, few + 1)}) do
  for i, count in ipairs(values(session .. COUNTS, hashes)) do
    if count and not known then known = string.sub(hashes, (i - 1) * HASH + 1, i * HASH) end
  end
  if known then break end
end
local first_epoch, first_hidden = 0, 0
if held_sid == sid then first_epoch, first_hidden = epochs_held, hidden_held end
local fields = redis.call('HMGET', session, 'injected', unpack(FIELDS))
local injected = table.remove(fields, 1)
local is_new_injection = injected and injected ~= injection_held
return {
  sid,
  fields,
  known,                              -- the newest of the request's chain hashes that the session holds
  values(session .. COUNTS, uncounted),
  redis.call('LRANGE', session .. EPOCHS .. lane, first_epoch, -1),
  fields[1] and 0 or redis.call('EXISTS', session .. WAS),  -- 1 if the session existed once
  redis.call('LRANGE', session .. HIDDEN, first_hidden, -1),
  injected,
  is_new_injection and redis.call('HGET', session, 'injection'),
  redis.call('LINDEX', session .. LINE, 0),  -- the first ticket of its queue
  user_message,                       -- if found by a joint: the joint, the message's chain hash, and its node
  place,                              -- in `newest`, from 0: of the newest answer or joint that any session has
}
