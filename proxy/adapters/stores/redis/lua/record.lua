--- record
-- Write a turn: nodes that are new, then the session's own fields, then the tips.
-- The first bytes of a node stay, but a completed answer takes the place of one that was cut off. The tip of
-- a main line moves where the new one is news and goes on from what is known, or where there was none; that
-- of an appended turn moves from where the turn was begun, and from nowhere else. Answers `kept`, or why
-- nothing was written.
local session, tips, bucket = KEYS[1], KEYS[2], KEYS[3]
local sid, record, created, tip = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local least, ttl = tonumber(ARGV[5]), tonumber(ARGV[6])
local headerless, appended, begun_at = ARGV[7] == '1', ARGV[8] == '1', ARGV[9]
local random = ARGV[10]               -- a name for what is there, where it has none; and chance
local joint, said = ARGV[11], ARGV[12]  -- its answer's, if it has one, and what was said there (in hex)
local noted = ARGV[13]                -- under which tag its bucket is noted, if it is
local outer = 16                      -- the outer parents; the nodes follow, five arguments each
local first = outer + ARGV[15]

local names = {'life', 'news', 'count', 'first', unpack(FIELDS)}
local fields = {}                     -- the session's, as they stand and as they are to be
for i, value in ipairs(redis.call('HMGET', session, unpack(names))) do fields[names[i]] = value end
local changes = {}
local function set(field, value)
  fields[field] = value
  changes[#changes + 1] = field
  changes[#changes + 1] = value
end
local function add(field, number) set(field, string.format('%.0f', (fields[field] or 0) + number)) end

-- Words that began a line beside the main one say nothing when they are said again; their answers do.
local has_beside = redis.call('SCARD', session .. BESIDE) > 0
local function joins(hash)
  return not has_beside or redis.call('SISMEMBER', session .. BESIDE, hash) == 0
end

local joined = ARGV[14] == '1'        -- whether it was found by a joint
for i = outer, first - 1 do
  if redis.call('HEXISTS', session .. NODES, ARGV[i]) == 0 then return 'torn' end
  joined = joined or joins(ARGV[i])
end
local had = fields.tip or ''
if appended and had ~= begun_at and had ~= tip then return 'moved' end

local added, fresh, counts, completed = {}, {}, {}, 0
local is_replaced = false
local is_due = false                  -- whether it must be renewed: a part of it may be new
local function count(hash, tokens)
  counts[#counts + 1] = hash
  counts[#counts + 1] = tokens
end

-- An answer that is there already: it may have been cut off then. One whose node came before, with a history
-- that overtook its turn, is counted when the turn comes; its count begins with a `+` from then on.
local function answer_again(hash, node, tokens)
  local before = redis.call('HGET', session .. COUNTS, hash)
  if before and string.sub(before, 1, 1) == '+' then return end
  local is_partial = redis.call('SISMEMBER', session .. PARTIAL, hash) == 1
  if is_partial and is_ours(redis.call('HGET', session .. NODES, hash)) then
    redis.call('SREM', session .. PARTIAL, hash)
    redis.call('HSET', session .. NODES, hash, node)
    fresh[hash], is_replaced, before = true, true, tokens
  end
  if before then
    count(hash, '+' .. before)
    completed = completed + 1
  end
end

-- A long message: as a link to the node that holds the same bytes, if one does. Such a node is never replaced.
local function once(hash, node, link)
  if redis.call('HEXISTS', session .. NODES, hash) == 1 then return node end
  local digest = string.sub(link, 1, DIGEST)
  local holder = redis.call('HGET', session .. TEXTS, digest)
  if holder and holder ~= hash and redis.call('HEXISTS', session .. NODES, holder) == 1 then
    return string.sub(link, DIGEST + 1)
  end
  redis.call('HSET', session .. TEXTS, digest, hash)
  is_due = is_due or redis.call('HLEN', session .. TEXTS) == 1
  return node
end

for i = first, #ARGV, 5 do
  local hash, node, tokens, kind = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if ARGV[i + 4] ~= '' then node = once(hash, node, ARGV[i + 4]) end
  if redis.call('HSETNX', session .. NODES, hash, node) == 1 then
    added[#added + 1], fresh[hash] = hash, true
    count(hash, (kind == 'answer' and '+' or '') .. tokens)
    if kind == 'answer' then completed = completed + 1 end
    if kind == 'partial' then
      redis.call('SADD', session .. PARTIAL, hash)
      is_due = true
    end
  elseif kind == 'answer' then
    answer_again(hash, node, tokens)
  elseif kind == 'message' then
    joined = joined or joins(hash)
  end
end
if #counts > 0 then redis.call('HSET', session .. COUNTS, unpack(counts)) end

-- For who has read the messages before: which are new, and another life where they are not what they were.
local number = redis.call('HLEN', session .. NODES)
local is_same = fields.life and not is_replaced and fields.count + #added == number
if not is_same and record == '' then
  redis.call('HDEL', session, 'life')
elseif not is_same or #added > 0 then
  if not is_same then set('life', random) end
  set('news', string.sub((is_same and fields.news or '') .. table.concat(added), -NEWS * HASH))
  set('count', number)
end

if appended and tip == '' and fields.unsaved then
  redis.call('HDEL', session, 'unsaved')
end
if record ~= '' then
  if not fields.created then set('created', created) end
  if noted ~= '' and fields.first ~= noted then set('first', noted) end
  if completed > 0 or not fields.turns then add('turns', completed) end
  local may_replace = not fields.record or is_ours(fields.record)
  if may_replace and (appended or next(fresh) or not fields.record) then
    set('record', record)
  end
  local moves = tip ~= '' and (appended or had == '' or (joined and fresh[tip]))
  if moves then set('tip', tip) end
  for i = outer, first - 1 do
    if moves and has_beside then redis.call('SREM', session .. BESIDE, ARGV[i]) end
  end
  for i = first, #ARGV, 5 do
    if moves and has_beside then redis.call('SREM', session .. BESIDE, ARGV[i]) end
    if not moves and not joined and ARGV[i + 3] == 'message' then
      redis.call('SADD', session .. BESIDE, ARGV[i])
      is_due = true
    end
  end
end
if #changes > 0 then redis.call('HSET', session, unpack(changes)) end

local left = redis.call('PTTL', session .. COUNTS)  -- as long as all parts; this one may have been lost
is_due = is_due or not is_same or left < least or left > ttl
if is_due then
  renew(session, ttl)
  if not headerless then redis.call('SET', session .. WAS, 1, 'PX', ttl + REMEMBERED) end
end

local is_entered = false
local function enter(hash, holder)
  local holders = redis.call('HGET', tips, hash)
  if holders and string.find(',' .. holders .. ',', ',' .. holder .. ',', 1, true) then return end
  if holders and holder ~= sid then  -- what this session said there before
    holders = string.gsub(',' .. holders, ',' .. sid .. '/%x*', '')
    holders = holders ~= '' and string.sub(holders, 2)
  end
  holders = holders and holders .. ',' .. holder or holder
  if #holders > 32 * (#holder + 1) then  -- too many: of those that are there still, the newest
    local living = alive(bucket, holders)
    holders = table.concat(living, ',', math.max(1, #living - 15))
  end
  redis.call('HSET', tips, hash, holders)
  is_entered = true
end
for i = first, #ARGV, 5 do
  if headerless and ARGV[i + 3] ~= 'message' then enter(ARGV[i], sid) end
end
if headerless and joint ~= '' then enter(joint, sid .. '/' .. said) end
if is_entered and string.byte(random) < 64 then  -- one in four of these looks for what has gone
  local sample = redis.call('HRANDFIELD', tips, 16, 'WITHVALUES')
  for i = 1, #sample, 2 do
    if #alive(bucket, sample[i + 1], 1) == 0 then redis.call('HDEL', tips, sample[i]) end
  end
end
if headerless and (is_due or is_entered) and redis.call('PTTL', tips) < ttl then
  redis.call('PEXPIRE', tips, 2 * ttl - least)
end
return 'kept'
