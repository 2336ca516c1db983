package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
)

// checkRun reads every queue of a topic once, from its minimum to its maximum offset, and prints how many messages there
// are, a hash over (queue, queue offset, body), and how many are bad (wrong body CRC, queue id or queue offset).
func checkRun(addr, topic string, queues int) {
	conn := dial(addr)
	r := bufio.NewReaderSize(conn, 1<<20)
	var b []byte
	call := func(code int, ext map[string]string, body []byte) (int, map[string]string) {
		conn.Write(frame(header{Code: code, Language: "JAVA", Opaque: 7, Ser: "JSON", Version: 401, Ext: ext}, body, false))
		for {
			c, op, e, err := readFrame(r, &b)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			if op == 7 && c != 40 { // 40: NOTIFY_CONSUMER_IDS_CHANGED, whose opaque is the broker's own
				return c, e
			}
		}
	}
	call(34, nil, heartbeat("checkgen", "checkgen_c", topic))
	sum := sha256.New()
	count, bad := 0, 0
	for q := 0; q < queues; q++ {
		at := func(code int) int64 {
			_, e := call(code, map[string]string{"topic": topic, "queueId": strconv.Itoa(q)}, nil)
			n, _ := strconv.ParseInt(e["offset"], 10, 64)
			return n
		}
		for off, end := at(31), at(30); off < end; {
			c, e := call(11, map[string]string{"consumerGroup": "checkgen_c", "topic": topic, "queueId": strconv.Itoa(q), "queueOffset": strconv.FormatInt(off, 10),
				"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}, nil)
			if c != 0 || len(b) == 0 {
				fmt.Printf("{\"mode\":\"check\",\"error\":\"queue %d offset %d: code %d %s\"}\n", q, off, c, e[""])
				os.Exit(1)
			}
			for p := 0; p+4 <= len(b); p += int(binary.BigEndian.Uint32(b[p:])) {
				m := b[p:]
				n := binary.BigEndian.Uint32(m[84:])
				body := m[88 : 88+n]
				qo := int64(binary.BigEndian.Uint64(m[20:]))
				if binary.BigEndian.Uint32(m[8:]) != crc32.ChecksumIEEE(body)&0x7FFFFFFF || qo != off || int(binary.BigEndian.Uint32(m[12:])) != q {
					bad++
				}
				fmt.Fprintf(sum, "%d %d ", q, qo)
				sum.Write(body)
				count++
				off = qo + 1
			}
		}
	}
	fmt.Printf("{\"mode\":\"check\",\"messages\":%d,\"bad\":%d,\"sha256\":\"%x\"}\n", count, bad, sum.Sum(nil)[:8])
}
