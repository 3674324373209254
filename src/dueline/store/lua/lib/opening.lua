-- opening: the epoch that a send expects. A first send gives it to its partition, if that has none ("+" before it; "?" if the
-- directory has not listed the topic). It is written with what the send stores. Needs FIELDS that begin with ep.
local epoch = sub(ARGV[2], 25)
local mark = string.byte(epoch)
local opens = mark == 43 or mark == 63
if opens then
  epoch = sub(epoch, 2)
  if not V[7] and not again then
    V[7], V[6] = epoch, mark == 43 and '1'
    set[1], set[2] = 'ep', epoch
    if V[6] then
      set[3], set[4] = 'reg', '1'
    end
  end
end
