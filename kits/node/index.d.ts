export type MessageType = 'NORMAL' | 'FIFO' | 'DELAY' | 'TRANSACTION' | 'PRIORITY' | 'MIXED';

export interface Options {
  /** Whether message time stands still until `advanceClock` (the default); false: the machine's clock. */
  testClock?: boolean;
  /** Keys of broker and name server, such as `{ autoCreateTopicEnable: false }`. */
  settings?: Record<string, string | number | boolean>;
}

/** A running name server and broker, in a child process. */
export interface PocketMQ extends AsyncDisposable {
  /** Address of the name server, `host:port`. */
  readonly nameServer: string;
  /** Address of the broker, `host:port`. */
  readonly broker: string;
  /** Address for gRPC clients, `host:port`; empty if the server has no gRPC library. */
  readonly grpc: string;
  /** Address of the page of metrics; empty without one. */
  readonly metrics: string;
  /** The last lines that the server printed. */
  readonly output: string;
  /** Creates a topic (with four queues), or changes it, and returns its name. Clients find it afterwards. */
  createTopic(name: string, type?: MessageType, options?: { queues?: number }): Promise<string>;
  /** Returns the current message time. */
  now(): Promise<Date>;
  /** Advances message time by ms or `1h30m`: messages that are due by then are in their topics afterwards. */
  advanceClock(duration: number | string): Promise<Date>;
  /** Stops the server; its messages are lost. */
  stop(): Promise<void>;
}

/** Starts a server on free ports, and waits until it is ready. */
export function start(options?: Options): Promise<PocketMQ>;
