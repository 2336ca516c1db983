package main

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A pop whose messages are being acknowledged.
type popped struct {
	queue, count, left int
}

// popRun pops 32 messages at a time and acknowledges each by itself, as the Java client does; a message counts once all of
// its pop are acknowledged. A reader that finds a queue empty continues as another group, from the beginning of the queue.
func popRun(addr, topic, brokerName string, queues, conns, window int, secs float64, pid int, steps bool) {
	var msgs, failed atomic.Int64
	var lastFail atomic.Value
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for c := 0; c < conns; c++ {
		conn := dial(addr)
		wg.Add(1)
		go func(c int, conn net.Conn) {
			defer wg.Done()
			defer conn.Close()
			r, w := bufio.NewReaderSize(conn, 1<<20), bufio.NewWriterSize(conn, 1<<18)
			opaque := int32(0)
			asked := map[int32]*popped{} // pops and acks in flight; for a pop count is 0
			round := make([]int, queues)
			group := func(q int) string { return "loadgen_" + strconv.Itoa(c) + "_" + strconv.Itoa(round[q]) }
			send := func(code int, of *popped, ext map[string]string) {
				opaque++
				asked[opaque] = of
				w.Write(frame(header{Code: code, Language: "JAVA", Opaque: opaque, Ser: "JSON", Version: 500, Ext: ext}, nil, false))
			}
			pop := func(q int) {
				send(200050, &popped{queue: q}, map[string]string{"consumerGroup": group(q), "topic": topic, "queueId": strconv.Itoa(q),
					"maxMsgNums": "32", "invisibleTime": "60000", "pollTime": "0", "bornTime": strconv.FormatInt(time.Now().UnixMilli(), 10),
					"initMode": "0", "expType": "TAG", "exp": "*", "order": "false"})
			}
			for i := 0; i < window; i++ {
				pop((c + i) % queues)
			}
			var b []byte
			for {
				select {
				case <-stop:
					return
				default:
				}
				if r.Buffered() < 8 {
					w.Flush()
				}
				conn.SetReadDeadline(time.Now().Add(10 * time.Second))
				code, op, ext, err := readFrame(r, &b)
				if err != nil {
					lastFail.Store(err.Error())
					failed.Add(1)
					return
				}
				of := asked[op]
				delete(asked, op)
				switch {
				case of == nil:
				case of.count > 0: // an ack
					if code != 0 {
						failed.Add(1)
						lastFail.Store("ack: code " + strconv.Itoa(code) + " " + ext[""])
					}
					if of.left--; of.left == 0 {
						msgs.Add(int64(of.count))
						pop(of.queue)
					}
				case code == 0:
					// For a single queue: "flag queueId start" and "flag queueId offset,offset,...".
					start, offsets := strings.Split(ext["startOffsetInfo"], " "), strings.Split(ext["msgOffsetInfo"], " ")
					if len(start) != 3 || len(offsets) != 3 {
						failed.Add(1)
						lastFail.Store("msgOffsetInfo " + ext["msgOffsetInfo"])
						continue
					}
					all := strings.Split(offsets[2], ",")
					of.count, of.left = len(all), len(all)
					q := strconv.Itoa(of.queue)
					for _, offset := range all {
						handle := strings.Join([]string{start[2], ext["popTime"], ext["invisibleTime"], ext["reviveQid"], "0", brokerName, q, offset}, " ")
						send(200051, of, map[string]string{"consumerGroup": group(of.queue), "topic": topic, "queueId": q, "extraInfo": handle,
							"offset": offset})
					}
				case code == 210 || code == 19:
					round[of.queue]++
					pop(of.queue)
				default:
					failed.Add(1)
					lastFail.Store("pop: code " + strconv.Itoa(code) + " " + ext[""])
					pop(of.queue)
				}
			}
		}(c, conn)
	}
	warmUp(pid, &msgs, steps)
	before, cpu0, t0 := msgs.Load(), cpu(pid), time.Now()
	time.Sleep(time.Duration(secs * float64(time.Second)))
	m, dt, used := float64(msgs.Load()-before), time.Since(t0).Seconds(), cpu(pid)-cpu0
	close(stop)
	fmt.Printf("{\"mode\":\"pop\",\"msgs_per_s\":%.0f,\"failed\":%d,\"broker_cpu_us_per_msg\":%.2f,\"rss_mb\":%.0f,\"last_fail\":%q}\n",
		m/dt, failed.Load(), used*1e6/m, status(pid, "VmRSS:"), fmt.Sprint(lastFail.Load()))
}
