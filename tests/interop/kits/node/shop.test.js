'use strict';

const assert = require('node:assert/strict');
const { after, before, describe, test } = require('node:test');
const { start } = require('pocketmq-test');
const { Message, Producer, SimpleConsumer } = require('rocketmq-client-nodejs');

const HALF_AN_HOUR_MS = 30 * 60_000;
const INVISIBLE_MS = 30_000;

describe('a shop', () => {
  let mq;
  before(async () => {
    mq = await start();
  });
  after(() => mq.stop());

  test('an unpaid order times out after half an hour', async () => {
    const topic = await mq.createTopic('Orders', 'DELAY');
    const producer = new Producer({ endpoints: mq.grpc, topics: [topic] });
    await producer.startup();
    const subscriptions = new Map([[topic, '*']]);
    const consumer = new SimpleConsumer({ endpoints: mq.grpc, consumerGroup: 'timeout', subscriptions, awaitDuration: 5000 });
    await consumer.startup();
    try {
      const sentAt = await mq.now();
      const deliveryTimestamp = new Date(sentAt.getTime() + HALF_AN_HOUR_MS);
      await producer.send(new Message({ topic, body: Buffer.from('A1'), deliveryTimestamp }));
      await mq.advanceClock('29m');
      assert.deepEqual(await consumer.receive(1, INVISIBLE_MS), []);
      assert.deepEqual(await mq.advanceClock(60_000), deliveryTimestamp);
      const bodies = [];
      while (bodies.length === 0) {
        for (const message of await consumer.receive(1, INVISIBLE_MS)) {
          bodies.push(message.body.toString());
          await consumer.ack(message);
        }
      }
      assert.deepEqual(bodies, ['A1']);
    } finally {
      await consumer.shutdown();
      await producer.shutdown();
    }
  });

  test('durations and message types that do not exist are refused', async () => {
    await assert.rejects(mq.advanceClock('1.5h'), RangeError);
    await assert.rejects(mq.createTopic('Quick', 'QUICK'), /message\.type/);
  });
});

test('options', async () => {
  const mq = await start({ testClock: false, settings: { autoCreateTopicEnable: false, brokerName: 'shop' } });
  assert.match(mq.output, /broker\[shop\]/);
  assert.match(mq.nameServer, /^127\.0\.0\.1:\d+$/);
  assert.match(mq.metrics, /^http:\/\/127\.0\.0\.1:\d+\/metrics$/);
  assert.ok(Math.abs((await mq.now()) - Date.now()) < 60_000);
  await assert.rejects(mq.advanceClock('1s'), /--test-clock/);
  await mq.stop();
  await mq.stop();
  await assert.rejects(mq.now(), /did not answer/);
});

test('a failure to start says why', async () => {
  await assert.rejects(start({ settings: { brokerId: 'x' } }), /brokerId/);
  const { POCKETMQ } = process.env;
  process.env.POCKETMQ = '/nowhere/pocketmq';
  try {
    await assert.rejects(start(), /set POCKETMQ/);
  } finally {
    process.env.POCKETMQ = POCKETMQ;
  }
});

test('a server that is not stopped does not keep the process', async () => {
  await start();
});
