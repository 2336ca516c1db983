// A tour of RocketMQ 5 with the official gRPC client for Node: normal, FIFO, delayed and transactional messages.
//
//     sh examples/grpc/create_topics.sh 127.0.0.1:9876
//     cd examples/grpc/node && npm ci && node tour.js 127.0.0.1:8081
//
// Prints `SENT topic count`, `CONSUMED topic count` and for each delayed message `LATE ms`: how long after its due time it
// came.
'use strict';

const { FilterExpression, Message, Producer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const TOPICS = ['TourNormal', 'TourFifo', 'TourTransaction', 'TourDelayed'];
const NORMAL = 20;
const ORDERS = 2;
const STEPS = 5;
const TRANSACTIONS = 3;
const DELAYED = 3;
const DELAY_MS = 5000;
const INVISIBLE_MS = 30000;
const PATIENCE_MS = 60000;

const [endpoints] = process.argv.slice(2);
const sent = new Map();
const consumed = new Map();
const seen = new Set();
const lastStep = new Map();
const disorders = [];

const add = (counts, topic) => counts.set(topic, (counts.get(topic) ?? 0) + 1);
const message = (topic, body, attributes = {}) => new Message({ topic, body: Buffer.from(body), ...attributes });

async function send(producer, one, transaction = undefined) {
  await producer.send(one, transaction);
  add(sent, one.topic);
}

async function sendAll(producer) {
  for (let i = 0; i < NORMAL; i++) {
    await send(producer, message('TourNormal', `normal ${i}`, { tag: 'tour', keys: [`order-${i}`] }));
  }
  for (let step = 0; step < STEPS; step++) { // messages of one group are received in order
    for (let order = 0; order < ORDERS; order++) {
      await send(producer, message('TourFifo', `${order} ${step}`, { messageGroup: `order-${order}` }));
    }
  }
  for (let i = 0; i < TRANSACTIONS; i++) {
    const transaction = producer.beginTransaction();
    await send(producer, message('TourTransaction', `transaction ${i}`), transaction);
    await transaction.commit();
  }
  const unwanted = producer.beginTransaction();
  await producer.send(message('TourTransaction', 'nobody receives this'), unwanted);
  await unwanted.rollback();
  for (let i = 0; i < DELAYED; i++) {
    const due = Date.now() + DELAY_MS;
    await send(producer, message('TourDelayed', String(due), { deliveryTimestamp: new Date(due) }));
  }
}

function count(one) {
  if (seen.has(one.messageId)) {
    return; // duplicates are possible
  }
  seen.add(one.messageId);
  const body = one.body.toString();
  add(consumed, one.topic);
  if (one.topic === 'TourDelayed') {
    console.log('LATE', Date.now() - Number(body));
  }
  if (one.topic === 'TourFifo') {
    const [order, step] = body.split(' ').map(Number);
    if (step !== (lastStep.get(order) ?? -1) + 1) {
      disorders.push(`order ${order}: step ${step} after ${lastStep.get(order)}`);
    }
    lastStep.set(order, step);
  }
}

async function receiveAll(topic) {
  const subscriptions = new Map([[topic, FilterExpression.SUB_ALL]]);
  const consumer = new SimpleConsumer({ endpoints, consumerGroup: `${topic}Group`, subscriptions, awaitDuration: 5000 });
  await consumer.startup();
  const deadline = Date.now() + PATIENCE_MS;
  while ((consumed.get(topic) ?? 0) < sent.get(topic) && Date.now() < deadline) {
    for (const one of await consumer.receive(16, INVISIBLE_MS)) {
      count(one);
      await consumer.ack(one); // else it comes again after INVISIBLE_MS
    }
  }
  await consumer.shutdown();
}

async function main() {
  // The checker's answer is for transactions of which the server heard nothing, such as those of a producer that was killed.
  const checker = { check: async () => TransactionResolution.COMMIT };
  // The other topics are found by the first send. With several here, this client may wait for ever at its start.
  const producer = new Producer({ endpoints, topics: ['TourTransaction'], checker });
  await producer.startup();
  await sendAll(producer);
  for (const topic of TOPICS) {
    await receiveAll(topic);
  }
  await producer.shutdown();
  sent.forEach((number, topic) => console.log('SENT', topic, number));
  consumed.forEach((number, topic) => console.log('CONSUMED', topic, number));
  disorders.forEach(line => console.log('DISORDER', line));
  return TOPICS.every(topic => consumed.get(topic) === sent.get(topic)) && !disorders.length ? 0 : 1;
}

main().then(
  status => process.exit(status), // timers of the client may still be set
  error => {
    console.error(error);
    process.exit(1);
  },
);
