-- Dead letters: listed, counted by kind and host, queued again or dropped.

-- The letter that a member of Tv stands for: host, kind, error, time and record.
local function listed_letter(T, member)
  local first = member:find('\0', 1, true)
  local second = member:find('\0', first + 1, true)
  local name = sub(member, first + 1, second - 1)
  local letter = call('HGET', T .. 'x', letter_field(name, sub(member, second + 7)))
  return {name, unpack(decode(letter))}
end

-- The first letters between two places.
local function dead_letters(keys, arguments)
  local low, high, limit = arguments[1], arguments[2], tonumber(arguments[3])
  local letters = {}
  for place, member in ipairs(call('ZRANGEBYLEX', keys[1] .. 'v', low, high, 'LIMIT', 0, limit)) do
    letters[place] = listed_letter(keys[1], member)
  end
  return letters
end

-- Whether a text stands before another one in the order of bytes, as in a zset. (Lua's `<` goes by the server's locale.)
local function stands_before(one, other)
  for place = 1, min(#one, #other) do
    local mine, its = byte(one, place), byte(other, place)
    if mine ~= its then return mine < its end
  end
  return #one < #other
end

-- The rank of the first member after a score and, among those with this score, after a name. An empty name stands before
-- all of them, and AFTER_ALL behind them.
local function rank_after(key, score, name)
  if name == '' then return call('ZCOUNT', key, '-inf', '(' .. score) end
  if name == AFTER_ALL then return call('ZCOUNT', key, '-inf', score) end
  local low, high = call('ZCOUNT', key, '-inf', '(' .. score), call('ZCOUNT', key, '-inf', score)
  while low < high do
    local middle = floor((low + high) / 2)
    if stands_before(name, call('ZRANGE', key, middle, middle)[1]) then high = middle else low = middle + 1 end
  end
  return low
end

-- The largest groups of several kinds: kind, host, and minus how many letters of each. The arguments are how many groups
-- are wanted, and for each kind, in order, its name and the score and the host after which its groups begin; the score
-- is empty for all of them.
local function dead_groups(keys, arguments)
  local limit, groups, answer = tonumber(arguments[1]), {}, {}
  for place = 2, #arguments, 3 do
    local kind, score, name = arguments[place], arguments[place + 1], arguments[place + 2]
    local key = keys[1] .. 'j' .. kind
    local first = score ~= '' and rank_after(key, score, name) or 0
    local found = call('ZRANGE', key, first, first + limit - 1, 'WITHSCORES')
    for at = 1, #found, 2 do groups[#groups + 1] = {tonumber(found[at + 1]), #groups, kind, found[at]} end
  end
  table.sort(groups, function(one, other)
    if one[1] ~= other[1] then return one[1] < other[1] end
    return one[2] < other[2]
  end)
  for place = 1, min(limit, #groups) do
    answer[place] = {groups[place][3], groups[place][4], groups[place][1]}
  end
  return answer
end

-- Removes those of these URLs that are dead from the dead letters, and returns host and record of each. A counter with a
-- name becomes less by as many.
local function take_dead(shard, pairs_of_host_and_url, counter)
  local taken = {}
  for _, pair in ipairs(pairs_of_host_and_url) do
    local field = letter_field(pair[1], pair[2])
    local letter = call('HGET', shard.T .. 'x', field)
    if letter then
      local fields = decode(letter)
      call('HDEL', shard.T .. 'x', field)
      unlist_letter(shard.T, fields[1], pair[1], fields[4])
      local totals = totals_of(shard)
      totals.dead = totals.dead - 1
      taken[#taken + 1] = {pair[1], fields[4]}
    end
  end
  if counter ~= '' and #taken > 0 then call('HINCRBY', shard.T .. 'c', counter, -#taken) end
  return taken
end

local function revive(keys, arguments)
  local now, urls, counter = unpack(decode(arguments[1]))
  local shard = open_shard(keys[1])
  local taken = take_dead(shard, urls, counter)
  for _, letter in ipairs(taken) do
    local host = known_host(shard, letter[1])
    local _, _, _, mark, attempt_id = history_of(letter[2])
    wake(host, now)
    put_back(shard, host, with_history(letter[2], 0, 0, 0, mark, attempt_id))
  end
  commit(shard)
  return #taken
end

local function drop(keys, arguments)
  local urls, counter = unpack(decode(arguments[1]))
  local shard = open_shard(keys[1])
  local taken = take_dead(shard, urls, counter)
  local totals = totals_of(shard)
  totals.done = totals.done + #taken
  commit(shard)
  return #taken
end
