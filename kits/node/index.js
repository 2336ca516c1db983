// Starts a RocketMQ-compatible name server and broker for tests.
//
//   const mq = await start();
//   await mq.createTopic('Orders', 'DELAY');
//   ...                                       any RocketMQ client, with mq.nameServer or mq.grpc
//   await mq.advanceClock('30m');
//   await mq.stop();
//
// The server is a child process with its store in memory; it ends with this process, also if that is killed.
'use strict';

const { call } = require('./remoting.js');
const { ServerProcess } = require('./server-process.js');

const UPDATE_AND_CREATE_TOPIC = 17;
const READ_CLOCK = 70010;
const ADVANCE_CLOCK = 70011;
const READ_AND_WRITE = 6;
const UNIT_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

class PocketMQ {
  #process;

  constructor(process) {
    this.#process = process;
    this.nameServer = process.found.nameServer;
    this.broker = process.found.broker;
    this.grpc = process.found.grpc ?? '';
    this.metrics = process.found.metrics ?? '';
  }

  get output() {
    return this.#process.output;
  }

  async createTopic(name, type = 'NORMAL', { queues = 4 } = {}) {
    await call(this.broker, UPDATE_AND_CREATE_TOPIC, {
      topic: name,
      defaultTopic: 'TBW102',
      readQueueNums: `${queues}`,
      writeQueueNums: `${queues}`,
      perm: `${READ_AND_WRITE}`,
      topicFilterType: 'SINGLE_TAG',
      topicSysFlag: '0',
      order: 'false',
      attributes: `+message.type=${type}`,
    });
    return name;
  }

  async now() {
    return timeOf(await call(this.broker, READ_CLOCK, {}));
  }

  async advanceClock(duration) {
    return timeOf(await call(this.broker, ADVANCE_CLOCK, { ms: `${msOf(duration)}` }));
  }

  stop() {
    return this.#process.stop();
  }

  [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    return this.stop();
  }
}

async function start({ testClock = true, settings = {} } = {}) {
  const words = ['up', '--memory', '--port', '0'];
  if (testClock) {
    words.push('--test-clock');
  }
  for (const [key, value] of Object.entries(settings)) {
    words.push('--set', `${key}=${value}`);
  }
  return new PocketMQ(await ServerProcess.start(words));
}

const timeOf = fields => new Date(Number(fields.now));

function msOf(duration) {
  if (typeof duration === 'number') {
    return duration;
  }
  const parts = [...duration.matchAll(/(\d+)(ms|s|m|h|d)/g)];
  if (parts.length === 0 || parts.map(([part]) => part).join('') !== duration) {
    throw new RangeError(`${duration}: expected ms or a duration such as 250ms, 10s, 30m, 1h30m or 400d`);
  }
  return parts.reduce((sum, [, number, unit]) => sum + Number(number) * UNIT_MS[unit], 0);
}

module.exports = { PocketMQ, start };
