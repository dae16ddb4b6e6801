-- `add`: URLs that may be new.

-- URLs come in groups, one for each host. All groups are in one flat list, because a table for each URL would cost more
-- than the work on it. The list has: the time, the most URLs that a host may have (or false), the number of URLs and of
-- groups, the hosts of the groups, and then for each group its number of URLs and of runs, the marks (hashes) of the
-- URLs, the URLs, and the runs. A run is a series of URLs found in one place. It has the position of its first URL in
-- the group, that URL's place in the order of the call, the priority, and the end that the records of all its URLs
-- share.
local RUN = 4
local NONE = {}

-- For the group that begins at `start`: its number of URLs, the indices before its first mark, before its first URL and
-- before its first run, and the index of its end.
local function parts_of(list, start)
  local count, marks = list[start], start + 1
  local runs = marks + 2 * count
  return count, marks, marks + count, runs, runs + RUN * list[start + 1]
end

-- The indices, in order, of the marks from list[first] to list[last] that are new. From now on they count as seen.
local function see_few(key, list, first, last)
  if first == last then return call('SADD', key, list[first]) == 1 and {first} or NONE end
  local fresh, added, count, seen = {}, {}, 0, call('SMISMEMBER', key, unpack(list, first, last))
  for place = 1, #seen do
    if seen[place] == 0 then
      count = count + 1
      fresh[count] = first + place - 1
      added[count] = list[first + place - 1]
    end
  end
  if count == 0 or call('SADD', key, unpack(added)) == count then return fresh end
  -- Some were given twice: only the first of each is new.
  local firsts, listed = {}, {}
  for _, index in ipairs(fresh) do
    if not listed[list[index]] then firsts[#firsts + 1] = index end
    listed[list[index]] = true
  end
  return firsts
end

local function see_in_buckets(T, name, count, list, first, last)
  local span, buckets, new, fresh = span_of(count), {}, {}, {}
  for index = first, last do
    -- The same as `bucket_of`; calling it for each mark would cost as much as everything else here.
    local number = list[index] % span
    if number >= count then number = number - span / 2 end
    local bucket = buckets[number]
    if not bucket then
      bucket = {marks = {}, indices = {}}
      buckets[number] = bucket
    end
    bucket.marks[#bucket.marks + 1] = list[index]
    bucket.indices[#bucket.indices + 1] = index
  end
  for number, bucket in pairs(buckets) do
    local found = see_few(seen_key(T, name, number), bucket.marks, 1, #bucket.marks)
    for place = 1, #found do new[bucket.indices[found[place]]] = true end
  end
  for index = first, last do
    if new[index] then fresh[#fresh + 1] = index end
  end
  return fresh
end

-- The same, one mark at a time, as long as there is room. Also returns the new marks for which there was no room.
local function see_within(T, name, count, list, first, last, room)
  local span, fresh, refused = span_of(count), {}, {}
  for index = first, last do
    local key = seen_key(T, name, bucket_of(list[index], count, span))
    if #fresh < room then
      if call('SADD', key, list[index]) == 1 then fresh[#fresh + 1] = index end
    elseif call('SISMEMBER', key, list[index]) == 0 then
      refused[#refused + 1] = index
    end
  end
  return fresh, refused
end

-- The indices of the marks in a group that are new, and of those that are new but over the limit of the host.
local function see_group(T, name, urls, list, first, last, cap)
  local count = bucket_count(urls)
  local refused, fresh = NONE, nil
  if last - first >= ARGUMENTS_MAX or cap and urls + last - first + 1 > cap then
    fresh, refused = see_within(T, name, count, list, first, last, (cap or math.huge) - urls)
  elseif count == 1 then
    fresh = see_few(seen_key(T, name, 0), list, first, last)
  elseif first == last then
    fresh = see_few(seen_key(T, name, bucket_of(list[first], count, span_of(count))), list, first, last)
  else
    fresh = see_in_buckets(T, name, count, list, first, last)
  end
  if #fresh > 0 then grow(T, name, urls, urls + #fresh) end
  return fresh, refused
end

-- Notes the answer for URLs of a group, given by the indices of their marks. The group's runs are from `runs` to
-- `last`.
local function answer(answers, list, marks, runs, last, indices, code)
  local run = runs + 1
  for position = 1, #indices do
    local index = indices[position] - marks
    while run + RUN <= last and list[run + RUN] <= index do run = run + RUN end
    answers[list[run + 1] + index - list[run]] = code
  end
end

-- The ids of new URLs by their places in the call: tasks are numbered in the order of arrival, across all hosts.
local function number_by_place(answers, id)
  local ids = {}
  for place = 1, #answers do
    if answers[place] == '0' then id = id + 1 end
    ids[place] = id
  end
  return ids
end

local function push_group(shard, list, ids, now, name, raw, start, fresh)
  local _, marks, urls, runs, last = parts_of(list, start)
  local host, queues, run = host_from(name, raw), {}, runs + 1
  for position = 1, #fresh do
    local index = fresh[position] - marks
    while run + RUN <= last and list[run + RUN] <= index do run = run + RUN end
    local priority, url, id = list[run + 2], list[urls + index], ids[list[run + 1] + index - list[run]]
    local queue = queues[priority]
    if not queue then
      queue = {}
      queues[priority] = queue
    end
    queue[#queue + 1] = pack('>I6BI2', id, 2 * priority, #url) .. url .. list[run + 3]
  end
  keep(shard, host)
  if host.urls == 0 then note_new(shard, name) end
  host.urls = host.urls + #fresh
  wake(host, now)
  for priority, records in pairs(queues) do
    spread('RPUSH', queue_key(shard.T, priority, name), records)
    note_queued(host, priority, #records)
  end
end

local function add(keys, arguments)
  local list = decode(arguments[1])
  local now, cap, total, groups = unpack(list, 1, 4)
  local T, answers, news, accepted, start = keys[1], {}, {}, 0, 5 + groups
  for place = 1, total do answers[place] = '1' end
  local hosts = read_fields(T .. 'h', list, 5, 4 + groups)
  for group = 1, groups do
    local name, raw = list[4 + group], hosts[group]
    local count, marks, _, runs, last = parts_of(list, start)
    local urls = raw and unpack_from('>I5', raw, HOST_URLS) or 0
    local fresh, refused = see_group(T, name, urls, list, marks + 1, marks + count, cap)
    if #fresh > 0 then
      answer(answers, list, marks, runs, last, fresh, '0')
      accepted = accepted + #fresh
      news[#news + 1] = {name, raw, start, fresh}
    end
    answer(answers, list, marks, runs, last, refused, '2')
    start = last + 1
  end
  if accepted > 0 then
    local shard, ids = open_shard(T), number_by_place(answers, call('INCRBY', T, accepted) - accepted)
    for _, new in ipairs(news) do push_group(shard, list, ids, now, unpack(new)) end
    commit(shard)
  end
  return table.concat(answers)
end
