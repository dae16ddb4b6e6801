-- Records of tasks, and the sets of seen URLs.

local function id_of(record)
  return (unpack_from('>I6', record))
end

local function priority_of(record)
  return floor(byte(record, 7) / 2)
end

local function history_of(record)
  if byte(record, 7) % 2 == 0 then return 0, 0, 0, 0, '', 8 end
  return unpack_from(HISTORY, record, 8)
end

local function url_of(record)
  if byte(record, 7) % 2 == 0 then return (unpack_from('>I2c0', record, 8)) end
  local _, _, _, _, _, position = history_of(record)
  return (unpack_from('>I2c0', record, position))
end

local function with_history(record, attempts, crashes, first_failed, mark, attempt_id)
  local _, _, _, _, _, position = history_of(record)
  local flag, history = 2 * priority_of(record), ''
  if attempts > 0 or crashes > 0 or first_failed > 0 or attempt_id ~= '' then
    flag, history = flag + 1, pack(HISTORY, attempts, crashes, first_failed, mark, #attempt_id, attempt_id)
  end
  return sub(record, 1, 6) .. char(flag) .. history .. sub(record, position)
end

local function with_priority(record, priority)
  return sub(record, 1, 6) .. char(2 * priority + byte(record, 7) % 2) .. sub(record, 8)
end

-- Seen URLs. A host's buckets grow by linear hashing: their number follows from the number of its URLs, and each
-- further bucket takes its part from one other.

local function bucket_count(urls)
  return max(1, ceil(urls / BUCKET_LOAD))
end

local function seen_key(T, name, bucket)
  -- Formatting a number is expensive, and most hosts have only one bucket.
  if bucket == 0 then return T .. 's0:' .. name end
  return T .. 's' .. bucket .. ':' .. name
end

-- The smallest power of two that is at least the number of buckets.
local function span_of(count)
  local span = 1
  while span < count do span = span * 2 end
  return span
end

local function bucket_of(mark, count, span)
  if count == 1 then return 0 end
  local number = tonumber(mark)
  local bucket = number % span
  return bucket < count and bucket or number % (span / 2)
end

local function split(T, name, bucket)
  local size = 1
  while size * 2 <= bucket do size = size * 2 end
  local source, target = seen_key(T, name, bucket - size), seen_key(T, name, bucket)
  local kept, moved = {}, {}
  for _, mark in ipairs(call('SMEMBERS', source)) do
    local part = tonumber(mark) % (size * 2) == bucket and moved or kept
    part[#part + 1] = mark
  end
  if #moved == 0 then return end
  call('DEL', source)
  spread('SADD', target, moved)
  if #kept > 0 then spread('SADD', source, kept) end
end

local function grow(T, name, before, after)
  for count = bucket_count(before) + 1, bucket_count(after) do split(T, name, count - 1) end
end
