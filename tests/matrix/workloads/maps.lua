local n = tonumber(arg[1])
local t = {}
for i = 1, n do t[i] = {i, tostring(i * 7919 % 1000003)} end
table.sort(t, function(a, b)
  if a[2] == b[2] then return a[1] < b[1] end
  return a[2] < b[2]
end)
local sum = 0
for i = 1, #t do sum = (sum * 31 + t[i][1]) % 1000000007 end
print(#t, sum)
