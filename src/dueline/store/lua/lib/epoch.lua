-- epoch: refuses a send unless the partition has the data that the caller knows: the same epoch, and a last send number
-- that is not lower than the highest one that the caller saw. After lib/opening.
if M.ep ~= epoch or seq < highest then
  if M.ep == epoch then
    -- It lost its last sends. The mark makes all processes refuse, even those that saw only lower numbers.
    M.ep = '!' .. epoch
    redis.call('HSET', m, 'ep', M.ep, 'eh', int(highest))
  end
  return reply(3, seq, 0, M.ep or '', redis.call('HGET', m, 'eh') or '')
end
