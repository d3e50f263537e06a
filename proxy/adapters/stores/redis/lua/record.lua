--- record
-- Write a turn: its new nodes, then the session's own fields, then the tips. Returns `kept`, or why nothing was
-- written; then, if the session was renewed, the tag of its first answer, and what `suffix` keys note of it, where
-- it is to be noted again.
-- A node that exists is never changed, except that a completed answer replaces one that was cut off. The tip
-- moves to the turn's last message if that is new and continues a branch that was known, or if the session has
-- no tip yet. An appended turn moves the tip only from the message after which the turn began.
local session, tips, bucket = KEYS[1], KEYS[2], KEYS[3]
local sid, record, created, tip = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local least_ttl, ttl = tonumber(ARGV[5]), tonumber(ARGV[6])  -- keys with `least_ttl` left are not renewed
local headerless, appended, begun_at = ARGV[7] == '1', ARGV[8] == '1', ARGV[9]
local random = ARGV[10]               -- a value for `life`, and for chance
local joint, user_message = ARGV[11], ARGV[12]  -- the answer's joint, and the message before it (its hash in hex)
local first_tag = ARGV[13]            -- tag of the session's first answer, if the session is noted there
local may_have_ended = ARGV[15] == '1' -- whether the session was known, and could not be asked for
local answered_at = tonumber(ARGV[16]) -- of a turn that is written late (milliseconds since 1970), else nil
local parents = 19                    -- from here on the nodes' parents outside of the turn
local noted = parents + ARGV[17]      -- from here on what is noted of the session in `suffix` keys
local first = noted + ARGV[18]        -- from here on the nodes, five arguments each

local names = {'life', 'news', 'count', 'first', unpack(FIELDS)}
local fields = {}                     -- the session's fields, with the changes of this turn
for i, value in ipairs(redis.call('HMGET', session, unpack(names))) do fields[names[i]] = value end
local changes = {}
local function set(field, value)
  fields[field] = value
  changes[#changes + 1] = field
  changes[#changes + 1] = value
end
local function add(field, number) set(field, string.format('%.0f', (fields[field] or 0) + number)) end

-- A message that began a side branch (a title request under a chat's id) does not show that a turn continues the
-- conversation; the answer to such a message does.
local has_side_branches = redis.call('SCARD', session .. BESIDE) > 0
local function is_of_main_branch(hash)
  return not has_side_branches or redis.call('SISMEMBER', session .. BESIDE, hash) == 0
end

-- A session that has ended leaves a mark, and one that the store has lost does not. Its nodes are there where an
-- earlier piece of this turn was written.
if (may_have_ended or answered_at) and not fields.record and redis.call('EXISTS', session .. NODES) == 0 then
  local deleted_at = redis.call('GET', session .. WAS)
  if deleted_at and (may_have_ended or answered_at < tonumber(deleted_at)) then return {'torn', false, {}} end
end
local continues = ARGV[14] == '1'     -- whether the turn continues what is known: here, found by a joint
for i = parents, noted - 1 do
  if redis.call('HEXISTS', session .. NODES, ARGV[i]) == 0 then
    -- A server that was full may have dropped the messages, and kept their counts, which would go on to say that
    -- they are there, also once something else was written: without counts the next turn brings all of them.
    if redis.call('HEXISTS', session .. COUNTS, ARGV[i]) == 1 then redis.call('DEL', session .. COUNTS) end
    return {'torn', false, {}}
  end
  continues = continues or is_of_main_branch(ARGV[i])
end
local old_tip = fields.tip or ''
if appended and old_tip ~= begun_at and old_tip ~= tip then return {'moved', false, {}} end

local added, is_new, counts, completed = {}, {}, {}, 0
local has_replaced = false
local must_renew = false              -- a part of the session may be new, and has no ttl yet
local function count(hash, tokens)
  counts[#counts + 1] = hash
  counts[#counts + 1] = tokens
end

-- Write an answer whose node exists already. It replaces one that was cut off. If the node was written as part of
-- a later request's history, which arrived before this turn, the answer is counted as completed now. A `+` before
-- its count shows that it was.
local function write_answer_again(hash, node, tokens)
  local before = redis.call('HGET', session .. COUNTS, hash)
  if before and string.sub(before, 1, 1) == '+' then return end
  local is_partial = redis.call('SISMEMBER', session .. PARTIAL, hash) == 1
  if is_partial and is_ours(redis.call('HGET', session .. NODES, hash)) then
    redis.call('SREM', session .. PARTIAL, hash)
    redis.call('HSET', session .. NODES, hash, node)
    is_new[hash], has_replaced, before = true, true, tokens
  end
  if before then
    count(hash, '+' .. before)
    completed = completed + 1
  end
end

-- What to store for a long message: a link, if another node holds the same bytes, else the node itself. Nodes
-- that links lead to are never replaced.
local function node_or_link(hash, node, link)
  if redis.call('HEXISTS', session .. NODES, hash) == 1 then return node end
  local digest = string.sub(link, 1, DIGEST)
  local holder = redis.call('HGET', session .. TEXTS, digest)
  if holder and holder ~= hash and redis.call('HEXISTS', session .. NODES, holder) == 1 then
    return string.sub(link, DIGEST + 1)
  end
  redis.call('HSET', session .. TEXTS, digest, hash)
  must_renew = must_renew or redis.call('HLEN', session .. TEXTS) == 1
  return node
end

for i = first, #ARGV, 5 do
  local hash, node, tokens, kind = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if ARGV[i + 4] ~= '' then node = node_or_link(hash, node, ARGV[i + 4]) end
  if redis.call('HSETNX', session .. NODES, hash, node) == 1 then
    added[#added + 1], is_new[hash] = hash, true
    count(hash, (kind == 'answer' and '+' or '') .. tokens)
    if kind == 'answer' then completed = completed + 1 end
    if kind == 'partial' then
      redis.call('SADD', session .. PARTIAL, hash)
      must_renew = true
    end
  elseif kind == 'answer' then
    write_answer_again(hash, node, tokens)
  elseif kind == 'message' then
    continues = continues or is_of_main_branch(hash)
  end
end
if #counts > 0 then redis.call('HSET', session .. COUNTS, unpack(counts)) end
if noted < first then
  redis.call('SADD', session .. NOTED, unpack(ARGV, noted, first - 1))
  must_renew = true
end

-- Readers that have read the other messages read only those in `news`. A new `life` tells them that the others
-- may have changed.
local number = redis.call('HLEN', session .. NODES)
local is_unchanged = fields.life and not has_replaced and fields.count + #added == number
if not is_unchanged and record == '' then
  redis.call('HDEL', session, 'life')
elseif not is_unchanged or #added > 0 then
  if not is_unchanged then set('life', random) end
  set('news', string.sub((is_unchanged and fields.news or '') .. table.concat(added), -NEWS * HASH))
  set('count', number)
end

if appended and tip == '' and fields.unsaved then
  redis.call('HDEL', session, 'unsaved')
end
if record ~= '' then
  if not fields.created then set('created', created) end
  if first_tag ~= '' and fields.first ~= first_tag then set('first', first_tag) end
  if completed > 0 or not fields.turns then add('turns', completed) end
  local may_replace = not fields.record or is_ours(fields.record)
  if may_replace and (appended or next(is_new) or not fields.record) then
    set('record', record)
  end
  local moves_tip = tip ~= '' and (appended or old_tip == '' or (continues and is_new[tip]))
  if moves_tip then set('tip', tip) end
  for i = parents, noted - 1 do
    if moves_tip and has_side_branches then redis.call('SREM', session .. BESIDE, ARGV[i]) end
  end
  for i = first, #ARGV, 5 do
    if moves_tip and has_side_branches then redis.call('SREM', session .. BESIDE, ARGV[i]) end
    if not moves_tip and not continues and ARGV[i + 3] == 'message' then
      redis.call('SADD', session .. BESIDE, ARGV[i])
      must_renew = true
    end
  end
end
if #changes > 0 then redis.call('HSET', session, unpack(changes)) end

local left = redis.call('PTTL', session .. COUNTS)  -- the same for all parts; negative if this one was lost
local is_due = not is_unchanged or left < least_ttl or left > ttl
must_renew = must_renew or is_due
if must_renew then
  if fields.record then
    renew(session, ttl)
  else  -- an early piece of the session's first turn, whose later ones may never come
    renew(session, math.min(ttl, UNRECORDED))
  end
  if not headerless then redis.call('SET', session .. WAS, 0, 'NX', 'PX', ttl + REMEMBERED) end
end

-- Add the session to an entry of the tips: an answer's chain hash, or a joint.
local has_new_entry = false
local function add_to_tips(hash, holder)
  local holders = redis.call('HGET', tips, hash)
  if holders and string.find(',' .. holders .. ',', ',' .. holder .. ',', 1, true) then return end
  if holders and holder ~= sid then  -- the message that this session had at that joint before
    holders = string.gsub(',' .. holders, ',' .. sid .. '/%x*', '')
    holders = holders ~= '' and string.sub(holders, 2)
  end
  holders = holders and holders .. ',' .. holder or holder
  if #holders > 32 * (#holder + 1) then  -- too many: keep the newest of those that still exist
    local living = alive(bucket, holders)
    holders = table.concat(living, ',', math.max(1, #living - 15))
  end
  redis.call('HSET', tips, hash, holders)
  has_new_entry = true
end
for i = first, #ARGV, 5 do
  if headerless and ARGV[i + 3] ~= 'message' then add_to_tips(ARGV[i], sid) end
end
if headerless and joint ~= '' then add_to_tips(joint, sid .. '/' .. user_message) end
if has_new_entry and string.byte(random) < 64 then  -- one in four times, drop some sessions that are gone
  local sample = redis.call('HRANDFIELD', tips, 16, 'WITHVALUES')
  for i = 1, #sample, 2 do
    if #alive(bucket, sample[i + 1], 1) == 0 then redis.call('HDEL', tips, sample[i]) end
  end
end
if headerless and (must_renew or has_new_entry) and redis.call('PTTL', tips) < ttl then
  redis.call('PEXPIRE', tips, 2 * ttl - least_ttl)
end
local places = {}  -- of a client that sends its newest messages, each turn notes the places that it may need
if is_due and noted == first and redis.call('SCARD', session .. NOTED) <= 16 then
  places = redis.call('SMEMBERS', session .. NOTED)
end
return {'kept', is_due and first_tag == '' and fields.first, places}
