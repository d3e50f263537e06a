-- Add amounts to the bills of an hour, each under what it is of and its model.
add_group(KEYS[1], ARGV[2], ARGV[3], 4)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
