-- Note that a session has had a turn, in a scope that begins to be there where it was not.
local scope = KEYS[1]
local thread, at, ttl, about, workspace = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
if version_of(scope) == 0 then next_version(scope, 0) end
if redis.call('HSETNX', scope, 'about', about) == 1 then redis.call('HSET', scope, 'workspace', workspace) end
note_thread(scope, thread, at)
renew_scope(scope, ttl)
