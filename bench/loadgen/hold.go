package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

const heldOnEach = 100

// hold keeps count pulls waiting in the broker, up to heldOnEach on a connection, for messages of an empty topic. A pull that
// is answered without a message is sent again, after a time of its own, so that they do not come in waves; other answers end
// the program.
func hold(addr, topic string, queues, count int) {
	for first := 0; first < count; first += heldOnEach {
		go holdOn(dial(addr), "holder"+strconv.Itoa(first), topic, queues, min(heldOnEach, count-first))
	}
}

func holdOn(conn net.Conn, client, topic string, queues, count int) {
	r, w := bufio.NewReader(conn), bufio.NewWriter(conn)
	ask := func(opaque int32) {
		w.Write(frame(header{Code: 11, Language: "JAVA", Opaque: opaque, Ser: "JSON", Version: 401, Ext: map[string]string{
			"consumerGroup": "holdgen_c", "topic": topic, "queueId": strconv.Itoa(int(opaque) % queues), "queueOffset": "0",
			"maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": strconv.Itoa(10000 + rand.IntN(10000)),
			"subscription": "*", "subVersion": "0", "expressionType": "TAG"}}, nil, false))
	}
	w.Write(frame(header{Code: 34, Language: "JAVA", Opaque: 0, Ser: "JSON", Version: 401}, heartbeat(client, "holdgen_c", topic), false))
	for opaque := 1; opaque <= count; opaque++ {
		ask(int32(opaque))
	}
	var b []byte
	for {
		if r.Buffered() < 8 {
			w.Flush()
		}
		code, opaque, ext, err := readFrame(r, &b)
		switch {
		case err != nil || (code != 0 && code != 19 && code != 40):
			fmt.Fprintln(os.Stderr, "held pull: code", code, ext[""], err)
			os.Exit(1)
		case code == 19: // PULL_NOT_FOUND: it has waited for its time
			ask(opaque)
		}
	}
}
