// The program `pocketmq` as a child process: it is found, started, watched until it is ready, and ended.
'use strict';

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');

/** Variable with the program to run, if it is not on the PATH. */
const PROGRAM = 'POCKETMQ';
/** Asks the server to end with this process: on Linux the kernel kills it when the thread that started it ends. */
const PARENT = 'POCKETMQ_PARENT';
const READY_MAX_MS = 120_000;
const STOP_MAX_MS = 30_000;
const LINES_KEPT = 200;
/** The line that the server prints last begins so. */
const END_OF_READY_LINES = 'Try: ';
const READY_LINES = {
  nameServer: /^The Name Server boot success\. address=(\S+)/,
  broker: /^The broker\[.*\] boot success\. address=(\S+)/,
  grpc: /^gRPC: (\S+)/,
  metrics: /^Metrics: ([^\s,]+)/,
};

class ServerProcess {
  found = {};
  #child;
  #ended;
  #lines = [];
  #kill = () => this.#child.kill('SIGKILL');

  constructor(child) {
    this.#child = child;
    this.#ended = new Promise(resolve => child.once('close', resolve));
    process.once('exit', this.#kill);
    this.#ended.then(() => process.removeListener('exit', this.#kill));
  }

  /** Starts the program with these words, and resolves once it is ready. */
  static async start(words) {
    const [program, ...more] = [...command(), ...words];
    const env = { ...process.env, [PARENT]: `${process.pid}` };
    const child = spawn(program, more, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    const started = new ServerProcess(child);
    try {
      await started.#ready([program, ...more].join(' '));
    } catch (failure) {
      started.#kill();
      throw failure;
    }
    // A test that forgets `stop` can end all the same.
    for (const handle of [child, child.stdout, child.stderr]) {
      handle.unref();
    }
    return started;
  }

  get output() {
    return this.#lines.join('\n');
  }

  /** Asks the server to stop, and kills it if it does not in time. */
  async stop() {
    this.#child.ref();
    this.#child.kill('SIGTERM');
    const timer = setTimeout(this.#kill, STOP_MAX_MS);
    await this.#ended;
    clearTimeout(timer);
  }

  #ready(shown) {
    return new Promise((resolve, reject) => {
      const fail = why => reject(new Error(`${shown} ${why}; it printed:\n${this.output}`));
      const timer = setTimeout(() => fail(`was not ready within ${READY_MAX_MS / 1000} s`), READY_MAX_MS);
      const read = line => {
        this.#keep(line);
        if (line.startsWith(END_OF_READY_LINES)) {
          clearTimeout(timer);
          resolve();
        }
      };
      for (const stream of [this.#child.stdout, this.#child.stderr]) {
        readline.createInterface({ input: stream }).on('line', read);
      }
      this.#child.once('error', error => {
        clearTimeout(timer);
        reject(new Error(`cannot run ${shown}: install PocketMQ, or set ${PROGRAM} to its program: ${error.message}`));
      });
      this.#ended.then(() => {
        clearTimeout(timer);
        fail('ended');
      });
    });
  }

  #keep(line) {
    this.#lines.push(line);
    if (this.#lines.length > LINES_KEPT) {
      this.#lines.shift();
    }
    for (const [what, pattern] of Object.entries(READY_LINES)) {
      this.found[what] ??= pattern.exec(line)?.[1];
    }
  }
}

function command() {
  if (process.env[PROGRAM]) {
    return [process.env[PROGRAM]];
  }
  for (const folder of (process.env.PATH ?? '').split(path.delimiter)) {
    const file = path.join(folder, 'pocketmq');
    try {
      fs.accessSync(file, fs.constants.X_OK);
      return [file];
    } catch {
      // the next folder
    }
  }
  return ['python3', '-m', 'pocketmq'];
}

module.exports = { ServerProcess };
