-- Pin messages by their chain hashes, each once. They stay for as long as the session.
local session, ttl = KEYS[1], ARGV[1]
local pins = redis.call('HGET', session, 'pins') or ''
if #pins % HASH > 0 then return redis.error_reply('the pins cannot be read') end
local known = {}
for i = 1, #pins, HASH do known[string.sub(pins, i, i + HASH - 1)] = true end
local fresh = {pins}
for i = 2, #ARGV do
  if not known[ARGV[i]] then fresh[#fresh + 1] = ARGV[i] end
  known[ARGV[i]] = true
end
redis.call('HSET', session, 'pins', table.concat(fresh))
renew(session, ttl)
