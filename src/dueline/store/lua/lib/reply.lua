-- reply: the answer of a script on a partition, as one text. An array of its parts costs the store three times as much.
--        status:1 extra:1 now:8 note:8 size of numbers:4 numbers (msgpack) blob
local function reply(status, note, extra, numbers, text)
  return struct.pack('>BBI8I8I4', status, extra, now, note, #numbers) .. numbers .. text
end
