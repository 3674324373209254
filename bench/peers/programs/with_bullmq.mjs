// BullMQ for one measurement, in one process: a queue that adds one job a call, 64 at once, and for whole lives a
// worker with the same concurrency. Its documentation names that option for jobs that compute little, and the automatic
// removal of completed jobs. A tenth of the jobs come first, to warm up. Run in the folder of its environment.
//
//     node with_bullmq.mjs '{"work": "send", "port": 6379, "at_once": 64, "count": 20000, "body_bytes": 100}'
//     prints one line of JSON: {"done": 20000, "seconds": 3.2, "cpu_s": 2.9}

import { createRequire } from "node:module";

const { Queue, Worker } = createRequire(process.cwd() + "/")("bullmq");

const orders = JSON.parse(process.argv[2]);
const isLife = orders.work === "life";
const connection = { host: "127.0.0.1", port: orders.port };
const queue = new Queue(orders.work, { connection });
const body = { text: "x".repeat(orders.body_bytes) };
const options = isLife ? { removeOnComplete: true } : { delay: 3_600_000 };
await queue.waitUntilReady();

let missing = 0;
let finish = () => {};
if (isLife) {
  const worker = new Worker(orders.work, async () => {}, { connection, concurrency: orders.at_once });
  worker.on("completed", () => { if (--missing === 0) finish(); });
  await worker.waitUntilReady();
}

async function run(count) {
  let left = count;
  missing = count;
  const finished = isLife ? new Promise((resolve) => { finish = resolve; }) : null;
  async function adds() {
    while (left-- > 0) await queue.add("job", body, options);
  }
  const begun = process.hrtime.bigint(), cpu = process.cpuUsage();
  await Promise.all(Array.from({ length: orders.at_once }, adds));
  await finished;
  const seconds = Number(process.hrtime.bigint() - begun) / 1e9, { user, system } = process.cpuUsage(cpu);
  return { seconds, cpu_s: (user + system) / 1e6 };
}

await run(Math.ceil(orders.count / 10));
console.log(JSON.stringify({ done: orders.count, ...(await run(orders.count)) }));
process.exit(0);
