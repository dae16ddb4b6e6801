-- `settle`, `preview` and `preview_held`: what became of tasks.

local DONE, SCHEDULED, PUT_OFF, TO_BE_REFUSED = 0, 1, 3, 4
local REFUSED = '-'  -- as in `drumlin.engines.base`

-- A settlement has for each task: id, URL, attempt, its mark, state, size (-1: no page), counts, retry time, kind, error.
local function finish(shard, host, part)
  local id, _, attempt_id, mark, _, size, counts = unpack(part, 1, 7)
  if attempt_id ~= '' then remember_attempt(shard, id, mark) end
  host.bytes = host.bytes + max(size, 0)
  local sums = shard.sums
  for position = 1, #counts, 2 do
    local name = counts[position]
    sums[name] = (sums[name] or 0) + counts[position + 1]
  end
end

local function apply(shard, host, part, record, now)
  local id, _, attempt_id, mark, state, size = unpack(part, 1, 6)
  local attempts, crashes, first_failed, old_mark, old_attempt = history_of(record)
  if old_attempt ~= '' then call('SREM', shard.T .. attempts_key(id), old_mark) end
  finish(shard, host, part)
  if state == DONE then
    local totals = totals_of(shard)
    totals.done = totals.done + 1
    if size >= 0 then host.pages = host.pages + 1 end
    return
  end
  if state ~= PUT_OFF then
    attempts = attempts + 1
    if first_failed == 0 then first_failed = now end
  end
  record = with_history(record, attempts, crashes, first_failed, mark, attempt_id)
  if state == SCHEDULED or state == PUT_OFF then
    schedule(shard, host, record, part[8])
  else
    bury(shard, host, record, part[9], part[10], now)
  end
end

-- Judges a task that its lease does not hold (any more): it was settled before, waits for another lease, or another
-- node has it. Returns the verdict and, if the task would be settled, its record, and the key of its queue unless it is
-- scheduled.
local function judge_unheld(shard, host, id, url, attempt_id, mark, live)
  if attempt_id ~= '' and is_settled_with(shard, id, mark) then return 'R' end
  if live then return 'X' end
  local key, record = nil, call('HGET', shard.T .. 'w' .. host.name, pack('>I6', id))
  if not record then key, record = locate(shard, host, id) end
  if not record or url_of(record) ~= url then return 'X' end
  local _, _, _, _, old_attempt = history_of(record)
  if old_attempt ~= '' then return 'X' end
  return 'S', record, key
end

local function judge_held(record, url, attempt_id, live)
  if url_of(record) ~= url then return 'X' end
  if byte(record, 7) % 2 == 1 and attempt_id ~= '' then
    local _, _, _, _, old_attempt = history_of(record)
    if old_attempt == attempt_id then return 'R' end
  end
  return live and 'S' or 'X'
end

local function settle_unheld(shard, host, part, live, now)
  local verdict, record, key = judge_unheld(shard, host, part[1], part[2], part[3], part[4], live)
  if verdict ~= 'S' then return verdict end
  if part[5] == TO_BE_REFUSED then return 'O' end
  if key then take_queued(host, key, record) else unschedule(shard, host.name, record) end
  apply(shard, host, part, record, now)
  return verdict
end

-- Marks a task that another lease holds, and that was never settled: a result that is refused now must be refused when
-- it comes again, though nobody may hold the task by then.
local function refuse_for_good(shard, host, url, record)
  local attempts, crashes, first_failed, _, old_attempt = history_of(record)
  if old_attempt ~= '' or url_of(record) ~= url then return end
  record = with_history(record, attempts, crashes, first_failed, 0, REFUSED)
  call('HSET', lease_key(shard.T, host.name), sub(record, 1, 6), record)
end

local function settle_held(shard, host, part, live, record, now)
  local verdict = judge_held(record, part[2], part[3], live)
  if verdict == 'X' and not live then refuse_for_good(shard, host, part[2], record) end
  if verdict ~= 'S' then return verdict end
  if part[5] == TO_BE_REFUSED then return 'O' end
  apply(shard, host, part, record, now)
  local totals = totals_of(shard)
  totals.leased = totals.leased - 1
  return verdict
end

-- `ids` are the fields of the lease that were read and `held` their values; the first of each is the lease itself.
local function settle_parts(shard, host, parts, ids, held, live, now, verdicts)
  local gone = {}
  for place, part in ipairs(parts) do
    local id, record, verdict = ids[place + 1], held[place + 1], nil
    if record and not gone[id] then
      verdict = settle_held(shard, host, part, live, record, now)
      if verdict == 'S' then
        gone[id] = true
        gone[#gone + 1] = id
      end
    else
      verdict = settle_unheld(shard, host, part, live, now)
    end
    verdicts[#verdicts + 1] = verdict
  end
  if #gone > 0 then spread('HDEL', lease_key(shard.T, host.name), gone) end
end

-- `in_backoff` is 0 if it stays as it is, 1 for no and 2 for yes.
local function learn(shard, host, next_contact, delay, note, in_backoff, slow)
  if delay then host.delay = delay end
  if note == '' then
    call('HDEL', shard.T .. 'o', host.name)
  elseif note then
    call('HSET', shard.T .. 'o', host.name, note)
  end
  if in_backoff == 1 then
    call('ZREM', shard.T .. 'r', host.name)
  elseif in_backoff == 2 then
    call('ZADD', shard.T .. 'r', 0, host.name)
  end
  if slow == 0 then
    call('HDEL', shard.T .. 'p', host.name)
  elseif slow then
    call('HSET', shard.T .. 'p', host.name, format('%.17g', slow))
  end
  host.next_contact = max(host.next_contact, next_contact)
end

local function settle_lease(shard, settlement, now, verdicts)
  local name, lease_id, release, next_contact, delay, note, parts, in_backoff, slow = unpack(settlement)
  local host = known_host(shard, name)
  if not host then
    for _ = 1, #parts do verdicts[#verdicts + 1] = 'X' end
    return
  end
  local ids = {''}
  for place, part in ipairs(parts) do ids[place + 1] = pack('>I6', part[1]) end
  local held = host.leased and read_fields(lease_key(shard.T, name), ids, 1, #ids) or {}
  local grant = held[1] and unpack_grant(held[1])
  local live = grant and grant.lease_id == lease_id
  settle_parts(shard, host, parts, ids, held, live, now, verdicts)
  if live then
    learn(shard, host, next_contact, delay, note, in_backoff, slow)
    if release then end_lease(shard, host, grant) end
  end
end

local function settle(keys, arguments)
  local now, names, settlements = unpack(decode(arguments[1]))
  local shard, verdicts, hosts = open_shard(keys[1]), {}, {}
  shard.now, shard.sums, shard.attempts = now, {}, {}
  for place, settlement in ipairs(settlements) do hosts[place] = settlement[1] end
  look_up(shard, hosts)
  for _, settlement in ipairs(settlements) do settle_lease(shard, settlement, now, verdicts) end
  write_attempts(shard)
  for number, value in pairs(shard.sums) do call('HINCRBY', shard.T .. 'c', names[number], value) end
  commit(shard)
  return table.concat(verdicts)
end

-- What `settle` would say about `count` tasks. They begin at `first` in a flat list of ids, URLs, attempts and marks.
local function preview_lease(shard, name, lease_id, count, asked, first, answers)
  local host, ids = shard.hosts[name], {''}
  for place = 1, count do ids[place + 1] = pack('>I6', asked[first + 4 * place - 4]) end
  local held = host and host.leased and read_fields(lease_key(shard.T, name), ids, 1, #ids) or {}
  local live = held[1] and decode(held[1])[1] == lease_id
  answers[#answers + 1] = live and 'L' or '-'
  for place = 1, count do
    local at, verdict = first + 4 * place - 4, 'X'
    if held[place + 1] then
      verdict = judge_held(held[place + 1], asked[at + 1], asked[at + 2], live)
    elseif host then
      verdict = judge_unheld(shard, host, asked[at], asked[at + 1], asked[at + 2], asked[at + 3], live)
    end
    answers[#answers + 1] = verdict
  end
end

-- What `settle` would answer: for each lease whether it is live, then its verdicts. The argument is a flat list: the
-- number of leases, and for each its host, its id, its number of tasks, and the tasks.
local function preview(keys, arguments)
  local asked = decode(arguments[1])
  local shard, answers, hosts, at = open_shard(keys[1]), {}, {}, 2
  shard.attempts = {}
  for place = 1, asked[1] do
    hosts[place] = asked[at]
    at = at + 3 + 4 * asked[at + 2]
  end
  look_up(shard, hosts)
  at = 2
  for place = 1, asked[1] do
    preview_lease(shard, hosts[place], asked[at + 1], asked[at + 2], asked, at + 3, answers)
    at = at + 3 + 4 * asked[at + 2]
  end
  return table.concat(answers)
end

-- `preview` for the usual case: tasks that the live lease holds and that were never tried before. The argument is a
-- flat list: the number of leases, and for each its host, its id, its number of tasks, and their ids and URLs. The
-- answer for a task that is not such a case is '?'.
local function preview_held(keys, arguments)
  local asked = decode(arguments[1])
  local T, answers, at = keys[1], {}, 2
  for _ = 1, asked[1] do
    local lease_id, count, fields = asked[at + 1], asked[at + 2], {''}
    for place = 1, count do fields[place + 1] = pack('>I6', asked[at + 2 * place + 1]) end
    local held = read_fields(lease_key(T, asked[at]), fields, 1, count + 1)
    local live = held[1] and decode(held[1])[1] == lease_id
    answers[#answers + 1] = live and 'L' or '-'
    for place = 2, count + 1 do
      local record = live and held[place]
      local fresh = record and byte(record, 7) % 2 == 0 and unpack_from('>I2c0', record, 8) == asked[at + 2 * place]
      answers[#answers + 1] = fresh and 'S' or '?'
    end
    at = at + 3 + 2 * count
  end
  return table.concat(answers)
end
