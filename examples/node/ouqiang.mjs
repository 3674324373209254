// The protocol of ouqiang/delay-queue from Node 18 or newer, without packages.
//
//     DUELINE_URL=http://127.0.0.1:9277 node examples/node/ouqiang.mjs
//
// An order closes after a second unless it is paid. One of two orders is paid in time.

import { randomUUID } from "node:crypto";

const url = process.env.DUELINE_URL ?? "http://127.0.0.1:9277";

/** One call. The status is always 200; a `code` other than 0 means that it failed. */
async function call(path, value) {
  const response = await fetch(url + path, { method: "POST", body: JSON.stringify(value) });
  const { code, message, data } = await response.json();
  if (code !== 0) throw new Error(message);
  return data;
}

const topic = `orders-${randomUUID().slice(0, 8)}`;
const paid = `${topic}-A-2`; // ids are unique over all topics
const unpaid = `${topic}-A-1`;

for (const id of [unpaid, paid]) {
  // Times are whole seconds; the body is a string.
  await call("/push", { topic, id, delay: 1, ttr: 60, body: JSON.stringify({ number: id }) });
  console.log(`pushed ${id}`);
}
await call("/delete", { id: paid });
console.log(`deleted ${paid}`);

let job = null;
while (job === null) job = await call("/pop", { topic }); // held for up to 178 s, then null
console.log(`popped ${job.id} ${JSON.parse(job.body).number}`);

// A job that is not finished within its ttr is redelivered, so do nothing after a failure.
await call("/finish", { id: job.id });
console.log(`finished ${job.id}`);
console.log(`left ${JSON.stringify(await call("/get", { id: job.id }))}`);
