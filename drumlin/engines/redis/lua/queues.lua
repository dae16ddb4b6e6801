-- The queues of hosts: what waits to be leased, by priority and arrival.

local function queue_key(T, priority, name)
  return T .. 'q' .. priority .. name
end

local function note_queued(host, priority, count)
  host.flags = bor(host.flags, 2 ^ priority)
  host.queued = host.queued + count
end

-- A host that had nothing to do becomes ready now, or at its next contact if that is later.
local function wake(host, now)
  if host.queued == 0 and not host.leased then host.next_contact = max(host.next_contact, now) end
end

-- The first place in a queue whose task has this id or a higher one. Queues are in order of ids.
local function place_of(key, id)
  local low, high = 0, call('LLEN', key)
  while low < high do
    local middle = floor((low + high) / 2)
    if id_of(call('LINDEX', key, middle)) < id then low = middle + 1 else high = middle end
  end
  return low
end

local function insert(key, record)
  local id = id_of(record)
  local head = call('LINDEX', key, 0)
  if not head or id < id_of(head) then
    call('LPUSH', key, record)
    return
  end
  local pivot = call('LINDEX', key, place_of(key, id))
  if pivot then call('LINSERT', key, 'BEFORE', pivot, record) else call('RPUSH', key, record) end
end

local function put_back(shard, host, record)
  local priority = priority_of(record)
  insert(queue_key(shard.T, priority, host.name), record)
  note_queued(host, priority, 1)
end

-- Returns tasks to their places: nearly always the front of the queue.
local function put_all_back(shard, host, records)
  local queues = {}
  for _, record in ipairs(records) do
    local priority = priority_of(record)
    local queue = queues[priority] or {}
    queues[priority] = queue
    queue[#queue + 1] = {id_of(record), record}
  end
  for priority, queue in pairs(queues) do
    table.sort(queue, function(one, other) return one[1] > other[1] end)
    local key, sorted = queue_key(shard.T, priority, host.name), {}
    for position, entry in ipairs(queue) do sorted[position] = entry[2] end
    local head = call('LINDEX', key, 0)
    if not head or queue[1][1] < id_of(head) then
      spread('LPUSH', key, sorted)
    else
      for _, record in ipairs(sorted) do insert(key, record) end
    end
    note_queued(host, priority, #queue)
  end
end

-- Takes up to `count` tasks from the front, highest priority first.
local function take_front(shard, host, count)
  local taken = {}
  for priority = PRIORITY_MAX, 0, -1 do
    local wanted = count - #taken
    if wanted <= 0 or host.queued == #taken then break end
    if band(host.flags, 2 ^ priority) ~= 0 then
      local records = call('LPOP', queue_key(shard.T, priority, host.name), wanted) or {}
      if #records < wanted then host.flags = host.flags - 2 ^ priority end
      if #taken == 0 then
        taken = records
      else
        for _, record in ipairs(records) do taken[#taken + 1] = record end
      end
    end
  end
  host.queued = host.queued - #taken
  if host.queued == 0 then host.flags = 0 end
  return taken
end

-- Where a queued task stands: its queue's key, its record and its place there.
local function locate(shard, host, id)
  for priority = PRIORITY_MAX, 0, -1 do
    if band(host.flags, 2 ^ priority) ~= 0 then
      local key = queue_key(shard.T, priority, host.name)
      local place = place_of(key, id)
      local record = call('LINDEX', key, place)
      if record and id_of(record) == id then return key, record, place end
    end
  end
end

local function take_queued(host, key, record)
  call('LREM', key, 1, record)
  host.queued = host.queued - 1
  if host.queued == 0 then host.flags = 0 end
end
