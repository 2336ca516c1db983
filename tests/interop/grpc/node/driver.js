// Driver of the official gRPC client for Node: DRIVER ENDPOINT CASE TOPIC GROUP [key=value ...].
//
// Runs one case. Prints a JSON object per line: `row` for each consumed message, `note` for another fact, `ready`. Ends with
// status 0 after the case, or with 1 and the error on standard error.
'use strict';

const { ConsumeResult, FilterExpression, Message, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const POLL_MS = 5000; // the least that Apache's proxy accepts
const INVISIBLE_MS = 30000;
const CHANGED_INVISIBLE_MS = 10000;
const DELAY_MS = 2000;
const FAR_DELAY_MS = 20000;

const [endpoints, name, topic, group, ...words] = process.argv.slice(2);
const options = Object.fromEntries(words.map(word => [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)]));
const rowsWanted = Number(options.rows ?? 0);
const waitMs = 1000 * Number(options.wait_s ?? 60);
const forever = new Promise(() => setInterval(() => {}, 1 << 30));
let rows = 0;
let onRow = () => {};

const print = item => process.stdout.write(`${JSON.stringify(item)}\n`);
const note = (noted, value) => print({ note: noted, value });
const ready = () => print({ ready: true });
const text = message => message.body.toString();
const attemptRow = message => [text(message), message.deliveryAttempt];
const message = (body, attributes = {}) => new Message({ topic, body: Buffer.from(body), ...attributes });

function add(row) {
  print({ row });
  rows += 1;
  onRow();
}

/** Waits until `count` rows were printed, or as many as the options say. */
function waitRows(count) {
  const wanted = rowsWanted || count;
  return new Promise(resolve => {
    const timer = setTimeout(resolve, waitMs);
    onRow = () => {
      if (rows >= wanted) {
        clearTimeout(timer);
        resolve();
      }
    };
    onRow();
  });
}

/** Starts a client, which ends after `use`. */
async function running(client, use) {
  await client.startup();
  try {
    await use(client);
  } finally {
    await client.shutdown();
  }
}

function withProducer(use, resolution = undefined) {
  const checker = resolution === undefined ? undefined : { check: async () => resolution };
  return running(new Producer({ endpoints, topics: [topic], checker }), use);
}

/**
 * Runs a push consumer that fails once for each body in `failing`, or always with null. It is not shut down: it would wait for
 * the end of its long polls, which is up to 20 s away.
 */
async function withPush(use, { row = attemptRow, failing = [], expression = FilterExpression.SUB_ALL, held = null } = {}) {
  const toFail = new Set(failing);
  const consume = async received => {
    add(row(received));
    await held;
    return failing === null || toFail.delete(text(received)) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
  };
  const subscriptions = new Map([[topic, expression]]);
  const messageListener = { consume };
  await new PushConsumer({ endpoints, consumerGroup: group, subscriptions, messageListener }).startup();
  await use();
}

function withSimple(use) {
  const subscriptions = new Map([[topic, FilterExpression.SUB_ALL]]);
  return running(new SimpleConsumer({ endpoints, consumerGroup: group, subscriptions, awaitDuration: POLL_MS }), use);
}

/** Yields `count` messages, fewer if the time is over. */
async function* received(consumer, count) {
  const end = Date.now() + waitMs;
  while (count > 0 && Date.now() < end) {
    for (const one of await consumer.receive(16, INVISIBLE_MS)) {
      yield one;
      count -= 1;
    }
  }
}

async function one(consumer) {
  return (await received(consumer, 1).next()).value;
}

function sendThree() {
  return withProducer(async producer => {
    for (let number = 0; number < 3; number++) {
      const properties = new Map([['index', String(number)]]);
      await producer.send(message(`m${number}`, { tag: 'aba'[number], keys: [`k${number}`], properties }));
    }
  });
}

const CASES = {
  async normal() {
    await sendThree();
    await withSimple(async consumer => {
      for await (const found of received(consumer, 3)) {
        add([...attemptRow(found), found.tag, found.keys[0], found.properties.get('index')]);
        await consumer.ack(found);
      }
      note('rest', (await consumer.receive(16, INVISIBLE_MS)).length);
    });
  },
  send: sendThree,
  push: () => withPush(async () => {
    await sendThree();
    await waitRows(4);
  }, { failing: ['m1'] }),
  fifo: () => withPush(() => withProducer(async producer => {
    for (let number = 0; number < 4; number++) {
      await producer.send(message(`o${number}`, { messageGroup: 'one' }));
    }
    await waitRows(5);
  }), { failing: ['o1'] }),
  delay() {
    let sentMs = 0;
    return withPush(() => withProducer(async producer => {
      sentMs = Date.now();
      await producer.send(message('later', { deliveryTimestamp: new Date(sentMs + DELAY_MS) }));
      await waitRows(1);
    }), { row: found => [...attemptRow(found), Date.now() - sentMs] });
  },
  recall: () => withPush(() => withProducer(async producer => {
    const sent = await producer.send(message('x', { delay: FAR_DELAY_MS }));
    await producer.send(message('y', { delay: DELAY_MS }));
    const recalled = await producer.recallMessage(topic, sent.recallHandle);
    note('recalled', recalled.messageId === sent.messageId);
    await waitRows(1);
  })),
  transaction: () => withPush(() => withProducer(async producer => {
    for (const body of ['committed', 'rolled back', 'asked']) {
      const transaction = producer.beginTransaction();
      await producer.send(message(body), transaction);
      if (body === 'committed') {
        await transaction.commit();
      } else if (body === 'rolled back') {
        await transaction.rollback();
      }
    }
    await waitRows(2);
  }, TransactionResolution.COMMIT)),
  'orphan-send': () => withProducer(async producer => {
    await producer.send(message('orphan'), producer.beginTransaction());
    ready();
    await forever;
  }, TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED),
  'orphan-check': () => withPush(() => withProducer(() => waitRows(1), TransactionResolution.COMMIT)),
  tag: () => withPush(async () => {
    await sendThree();
    await waitRows(2);
  }, { expression: new FilterExpression('a') }),
  sql: () => withPush(async () => {
    await sendThree();
    await waitRows(1);
  }, { expression: new FilterExpression('index > 1', FilterType.SQL) }),
  dlq: () => withPush(() => withProducer(async producer => {
    await producer.send(message('d0'));
    await waitRows(2);
  }), { failing: null }),
  async invisible() {
    await withProducer(producer => producer.send(message('x')));
    await withSimple(async consumer => {
      const first = await one(consumer);
      add(attemptRow(first));
      await consumer.changeInvisibleDuration(first, CHANGED_INVISIBLE_MS);
      const changedMs = Date.now();
      const second = await one(consumer);
      note('waited_ms', Date.now() - changedMs);
      add(attemptRow(second));
      await consumer.ack(second);
    });
  },
  hold: () => withPush(async () => {
    await waitRows(1);
    ready();
    await forever;
  }, { held: forever }),
  drain: () => withPush(() => waitRows(1)),
  async ask() {
    const stopped = new Promise(resolve => process.once('SIGTERM', resolve));
    const row = found => {
      note('consumed', text(found));
      return attemptRow(found);
    };
    await withPush(async () => {
      ready();
      await stopped;
    }, { row });
  },
};

CASES[name]().then(
  () => process.exit(0), // timers of the client may still be set
  error => {
    console.error(error);
    process.exit(1);
  },
);
