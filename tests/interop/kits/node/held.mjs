// Starts a server, and waits to be killed.
import { start } from 'pocketmq-test';

const mq = await start();
console.log(mq.broker);
setInterval(() => {}, 1 << 30);
