-- lost: a change that takes a send number, but is not a send. It is not refused, but it must not hide from the next send
-- that the partition has lost its last ones. So it leaves the mark of lib/epoch.
local epoch = string.sub(ARGV[2], 25)
if epoch ~= '' and M.ep == epoch and seq < highest then
  redis.call('HSET', m, 'ep', '!' .. epoch, 'eh', int(highest))
end
