-- `record_new` and `record_contents`: which contents a registrable domain is known to have.

-- An entry, and the entry that it is near to, or ''. An entry begins with the length of that one's digest (0: there is
-- none) and the digest.
local function with_nearest(key, entry)
  local size = byte(entry, 1)
  return {entry, size > 0 and call('HGET', key, sub(entry, 2, 1 + size)) or ''}
end

-- Remembers contents that are new to the domain. If others have recorded contents since the caller looked, nothing is
-- done, and the answer has what they recorded. A content is its digest, its sketch (or empty), whether the sketch is
-- added, and its entry. With `adopting`, only sketches are added, of contents that are known already. The answer for a
-- content that is new and near to no other is empty.
local function record_contents(keys, arguments)
  local name, known, contents_max, contents, adopting = unpack(decode(arguments[1]))
  local entries, log = keys[1] .. 'e' .. name, keys[1] .. 'i' .. name
  local length = call('STRLEN', log)
  if known >= 0 and length ~= known then return {call('GETRANGE', log, known, -1)} end
  local digests, fields, fresh, room = {}, {}, {}, contents_max - call('HLEN', entries)
  for place, content in ipairs(contents) do digests[place] = content[1] end
  local stored, answers = read_fields(entries, digests, 1, #digests), {}
  for place, content in ipairs(contents) do
    local digest, sketch, joins, entry = unpack(content)
    if adopting then
      if stored[place] and joins then fresh[#fresh + 1] = sketch .. digest end
    elseif not stored[place] and not answers[digest] and room > 0 then
      fields[#fields + 1] = digest
      fields[#fields + 1] = entry
      room = room - 1
      if joins then fresh[#fresh + 1] = sketch .. digest end
      answers[place] = byte(entry, 1) == 0 and '' or nil
    end
    -- The same content may be in the call twice: then the second one repeats the first.
    answers[digest] = answers[digest] or stored[place] or entry
  end
  if #fields > 0 then spread('HSET', entries, fields) end
  if #fresh > 0 then call('APPEND', log, table.concat(fresh)) end
  local replies = {}
  for place, digest in ipairs(digests) do replies[place] = answers[place] or with_nearest(entries, answers[digest]) end
  return {false, table.concat(fresh), replies}
end

-- As `record_contents`, if all contents are new and near to no other, as nearly all are, and nobody has recorded anything
-- since the caller looked; otherwise nothing is done. Returns 1 or 0. Takes digests and entries in turn, and what is to be
-- added to the log.
local function record_new(keys, arguments)
  local name, known, contents_max, fields, sketches = unpack(decode(arguments[1]))
  local entries, log, digests = keys[1] .. 'e' .. name, keys[1] .. 'i' .. name, {}
  if call('STRLEN', log) ~= known then return 0 end
  for place = 1, #fields, 2 do digests[#digests + 1] = fields[place] end
  if call('HLEN', entries) + #digests > contents_max then return 0 end
  local stored = read_fields(entries, digests, 1, #digests)
  for place = 1, #digests do
    if stored[place] then return 0 end
  end
  spread('HSET', entries, fields)
  if sketches ~= '' then call('APPEND', log, sketches) end
  return 1
end
