// Dueline's own HTTP API from Node 18 or newer, without packages.
//
//     DUELINE_URL=http://127.0.0.1:9277 node examples/node/native.mjs
//
// An order closes after a second unless it is paid. One of two orders is paid in time; closing the other fails once.

import { randomUUID } from "node:crypto";

const url = process.env.DUELINE_URL ?? "http://127.0.0.1:9277";
const token = process.env.DUELINE_TOKEN;

/** One call of the API. Throws an Error with the server's code and message if the call is refused. */
async function call(method, path, value) {
  const headers = { "content-type": "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  const response = await fetch(`${url}/v1${path}`, { method, headers, body: JSON.stringify(value) });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${answer.error.code}: ${answer.error.message}`);
  // A call on several jobs returns one result for each; a refused one contains an error.
  const refused = (answer.results ?? []).find((result) => result.error);
  if (refused) throw new Error(`${refused.error.code}: ${refused.error.message}`);
  return answer;
}

/** The work. It may run twice for one job (delivery is at least once), so it must be idempotent. */
function close(order, attempt) {
  if (attempt === 1) throw new Error("the shop's database is restarting");
  console.log(`closed ${order.number}, attempt ${attempt}`);
}

const topic = `orders-${randomUUID().slice(0, 8)}`;
// With your own id, a send is safe to repeat when its answer was lost.
const send = (number) =>
  call("POST", `/topics/${topic}/jobs`, { id: `close-${number}`, body: { number }, delay: "1s", max_attempts: 5 });

for (const number of ["A-1", "A-2"]) {
  const sent = await send(number);
  console.log(`sent ${sent.id}, ${sent.state}`);
}
await call("DELETE", `/topics/${topic}/jobs/close-A-2`); // it was paid
console.log("cancelled close-A-2");

let open = 1;
while (open > 0) {
  // Waits up to 20 s for a due job. During the lease of 30 s no other consumer gets the job.
  const { jobs } = await call("POST", `/topics/${topic}/pull`, { max: 10, lease_ms: 30_000, wait_ms: 20_000 });
  for (const { id, lease, body, attempt } of jobs) {
    try {
      close(body, attempt);
    } catch (error) {
      await call("POST", `/topics/${topic}/release`, { jobs: [{ id, lease, delay_ms: 200, error: error.message }] });
      console.log(`released ${id}: ${error.message}`);
      continue;
    }
    await call("POST", `/topics/${topic}/ack`, { jobs: [{ id, lease }] });
    console.log(`acked ${id}`);
    open -= 1;
  }
}
console.log(`topic ${topic}`);
