// Maps, objects, strings and Buffers; checksums after each step.
"use strict";
const crypto = require("crypto");

const count = Number(process.argv[2]);

function make(n) {
  return {
    id: n,
    name: `object ${(n * 7919) % 1000003}`,
    values: Array.from({ length: 8 + (n % 9) }, (_, i) => n + i),
    next: null,
  };
}

function show(what, objects) {
  const hash = crypto.createHash("sha256");
  for (const o of objects) hash.update(`${o.id} ${o.name} ${o.values.join()} ${o.next.id}\n`);
  console.log(what, hash.digest("hex"));
}

const objects = [];
for (let n = 0; n < count; n++) objects.push(make(n));
for (let n = 0; n < count; n++) objects[n].next = objects[(n * 65537) % count];
show("built", objects);

const index = new Map(objects.map((o) => [`${o.name}/${o.id}`, o]));
let found = 0;
for (let n = 0; n < count; n += 3) {
  found = (found * 31 + index.get(`object ${(n * 7919) % 1000003}/${n}`).values.length) % 1000000007;
}
console.log("found", index.size, found);

const buffers = [];
for (let n = 0; n < count / 4000; n++) {
  const buffer = Buffer.alloc(1 << 20);
  for (let i = 0; i < buffer.length; i += 64) buffer.write(`${n} ${i} line after line`, i);
  buffers.push(buffer);
}
function showBuffers(what) {
  const hash = crypto.createHash("sha256");
  for (const buffer of buffers) hash.update(buffer);
  console.log(what, buffers.length, hash.digest("hex"));
}
showBuffers("buffers");

for (let n = 0; n < count; n += 3) {
  objects[n].values.push(n);
  objects[n].name = objects[n].name.toUpperCase();
}
for (let n = 1; n < count; n += 3) {
  const next = objects[n].next;
  objects[n] = make(n + 1);
  objects[n].next = next;
}
show("changed", objects);
index.clear();
const sorted = objects.map((o) => o.name).sort();
console.log("sorted", crypto.createHash("sha256").update(sorted.join()).digest("hex"));
showBuffers("buffers again");
show("again", objects);
