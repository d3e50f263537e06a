-- Note that a channel lies in a workspace, or no more.
redis.call(ARGV[2] == '1' and 'SADD' or 'SREM', KEYS[1] .. CHANNELS, ARGV[1])
