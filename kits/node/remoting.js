// One request of RocketMQ's remoting protocol, on a connection of its own. A frame is its length, the length of its header,
// the header in JSON, and the body.
'use strict';

const net = require('node:net');

const TIMEOUT_MS = 30_000;
const FRAME_LENGTH_MAX = 1 << 20;

/** Sends a request, and resolves to the fields of the answer. A refusal is an error. */
async function call(address, code, fields) {
  const header = { code, flag: 0, language: 'OTHER', opaque: 1, version: 399, serializeTypeCurrentRPC: 'JSON', extFields: fields };
  const answer = await exchange(address, Buffer.from(JSON.stringify(header)));
  if (answer.code !== 0) {
    throw new Error(`the broker refused request ${code} with code ${answer.code}: ${answer.remark}`);
  }
  return answer.extFields ?? {};
}

function exchange(address, header) {
  const colon = address.lastIndexOf(':');
  const socket = net.connect(Number(address.slice(colon + 1)), address.slice(0, colon));
  return new Promise((resolve, reject) => {
    let received = Buffer.alloc(0);
    const fail = why => reject(new Error(`the broker at ${address} did not answer: ${why}`));
    socket.setTimeout(TIMEOUT_MS, () => fail(`nothing within ${TIMEOUT_MS / 1000} s`));
    socket.on('error', error => fail(error.message));
    socket.on('close', () => fail('it closed the connection'));
    socket.on('data', data => {
      received = Buffer.concat([received, data]);
      const length = received.length < 4 ? 0 : received.readUInt32BE(0);
      if (length > FRAME_LENGTH_MAX) {
        fail(`a frame of ${length} bytes`);
      } else if (length > 0 && received.length >= 4 + length) {
        const headerLength = received.readUInt32BE(4) & 0xffffff; // the first byte is the kind of the header: 0 for JSON
        resolve(JSON.parse(received.subarray(8, 8 + headerLength).toString()));
      }
    });
    const lengths = Buffer.alloc(8);
    lengths.writeUInt32BE(4 + header.length, 0);
    lengths.writeUInt32BE(header.length, 4);
    socket.write(Buffer.concat([lengths, header]));
  }).finally(() => socket.destroy());
}

module.exports = { call };
