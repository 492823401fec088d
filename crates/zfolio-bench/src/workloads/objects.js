// An object graph built, and then a tenth of it worked on, one step of 100000
// anywhere. Takes the numbers of objects and of steps; prints a JSON line a phase.
const count = Number(process.argv[1]);
const steps = Number(process.argv[2]);
function phase(name, begin) {
  const value = (performance.now() - begin) / 1000;
  console.log(JSON.stringify({ phase: name, value, unit: "s" }));
}
let begin = performance.now();
const customers = [];
for (let key = 0; key < count; key++) {
  customers.push({
    key,
    name: "customer " + key,
    orders: [key * 3, key * 3 + 1, key * 3 + 2, key * 3 + 3],
    address: { street: "street " + (key % 1000), city: key % 89, v: key * 0.5 },
  });
}
phase("build", begin);
begin = performance.now();
const hot = Math.max(1, Math.floor(count / 10));
let state = 1;
let sum = 0;
for (let step = 0; step < steps; step++) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  const customer = customers[(state >>> 8) % (step % 100000 === 0 ? count : hot)];
  customer.address.v += 1;
  sum = (sum + customer.orders[step & 3] + customer.name.length) % 1000000007;
}
phase("part", begin);
console.log(JSON.stringify({ check: `${sum} ${customers[0].address.v}` }));
