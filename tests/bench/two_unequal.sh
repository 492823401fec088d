#!/usr/bin/env bash
# Two real programs in one run of `--slowdown 5%`, each on a processor of its own: sqlite3 looks up rows in a tenth of a table,
# of 1000 one anywhere, and CPython reads all objects of a list, again and again. What each has after 40 s, and what was bought:
#
#   ZFOLIO=path/to/zfolio tests/bench/two_unequal.sh
set -euo pipefail
rows=1600000 lookups=30000000
sql="CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT, address TEXT, balance REAL);
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $rows)
INSERT INTO customer SELECT i, printf('customer %09d', i),
    printf('%d street %d, city %d, order %x item %x price %d delivered',
        i % 97, i % 1000, i % 89, i * 2654435761, i * 40503, i % 997),
    i * 0.5 FROM n;
WITH RECURSIVE q(i, k) AS (SELECT 0, 0 UNION ALL
    SELECT i + 1, (k * 1103515245 + 12345 + i) % (CASE WHEN i % 1000 = 0 THEN $rows ELSE $rows / 10 END)
    FROM q WHERE i < $lookups)
SELECT count(*), sum(length(address) + balance) FROM q JOIN customer ON id = k;"
python="
import time
end = time.time() + 50
data = [{'id': i, 'name': 'customer %09d' % i, 'orders': [i * 7 % 1000, i * 13 % 997]} for i in range(500000)]
while time.time() < end:
    total = sum(one['id'] + one['orders'][0] for one in data)
print(total)"
export sql python
zfolio=${ZFOLIO:-zfolio}
"$zfolio" run --faults in-thread --slowdown 5% -- \
	sh -c 'taskset -c 0 sqlite3 :memory: "$sql" & taskset -c 1 python3 -c "$python" & wait' &
sleep 40
"$zfolio" stat $!
wait
