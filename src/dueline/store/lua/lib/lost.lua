-- lost: a change that takes a send number, but is no send. It is not refused, but it must not hide from the next send that
-- the partition has lost its last ones. So it leaves the mark of lib/epoch.
if epoch and epoch ~= '' and M.ep == epoch and seq < tonumber(highest) then
  redis.call('HSET', m, 'ep', '!' .. epoch, 'eh', highest)
end
