-- Note which turn's client was told that it is not saved.
local session = KEYS[1]
if redis.call('HEXISTS', session, 'record') == 1 then redis.call('HSET', session, 'unsaved', ARGV[1]) end
