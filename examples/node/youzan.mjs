// The Youzan-style protocol from Node 18 or newer, without packages.
//
//     DUELINE_URL=http://127.0.0.1:9277 node examples/node/youzan.mjs
//
// An order closes after a second unless it is paid. One of two orders is paid in time.

import { randomUUID } from "node:crypto";

const url = process.env.DUELINE_URL ?? "http://127.0.0.1:9277";

/** One command. The status is always 200; `success` tells whether it was done. */
async function call(command, fields) {
  const response = await fetch(url, { method: "POST", body: JSON.stringify({ command, ...fields }) });
  const answer = await response.json();
  if (!answer.success) throw new Error(answer.error);
  return answer;
}

const topic = `orders-${randomUUID().slice(0, 8)}`;
const paid = `${topic}-A-2`; // ids are unique over all topics
const unpaid = `${topic}-A-1`;

for (const id of [unpaid, paid]) {
  // Times are in seconds. A body that is an object comes back as JSON text.
  await call("add", { topic, id, delay: 1, TTR: 60, body: { number: id } });
  console.log(`added ${id}`);
}
await call("delete", { id: paid });
console.log(`deleted ${paid}`);

let job = { id: null };
while (job.id === null) job = await call("pop", { topic, timeout: 20 }); // without a timeout it does not wait
console.log(`popped ${job.id} ${JSON.parse(job.value).number}`);

// A job that is not finished within its TTR is redelivered, so do nothing after a failure.
await call("finish", { id: job.id });
console.log(`finished ${job.id}`);
console.log(`left ${(await call("pop", { topic })).id}`);
