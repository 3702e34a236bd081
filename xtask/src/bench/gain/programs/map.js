// Random lookups in a Map of objects, one in eight an update. Argument: entries, at most 2^24.

const fs = require('fs');

const entries = Number(process.argv[2]);
const table = new Map();
for (let key = 0; key < entries; key++) {
  table.set(key, { value: key, name: key });
}
fs.writeSync(1, 'ready\n');

let random = 2463534242;
let sum = 0;

function round() {
  for (let i = 0; i < 1024; i++) {
    random ^= random << 13;
    random ^= random >>> 17;
    random ^= random << 5;
    const found = table.get((random >>> 0) % entries);
    if (i % 8 === 0) {
      found.value = i;
    }
    sum = (sum + found.value) & 0xffff;
  }
}

for (;;) {
  const begun = process.hrtime.bigint();
  let ops = 0;
  while (process.hrtime.bigint() - begun < 20000000n) {
    round();
    ops += 1024;
  }
  fs.writeSync(1, `ops ${ops}\n`);
}
