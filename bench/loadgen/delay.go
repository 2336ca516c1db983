package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"
)

// delayRun sends rate messages a second for secs seconds, each due at its own time, receives them with long polling
// and prints their lateness. how: "level" (DELAY property), "timer" (TIMER_DELIVER_MS), "start"
// (__STARTDELIVERTIME), "burst" (TIMER_DELIVER_MS, all due at one instant), "now" (with -ms 0: not delayed, the baseline).
func delayRun(addr, topic, how string, ms int, level int, queues, rate int, secs float64, pid int) {
	var mu sync.Mutex
	seen := map[int]int{}
	var lates []float64
	early, tolerance := 0, 0.0
	if how == "level" { // due is computed from the time of the send: the broker's clock may still show the millisecond before
		tolerance = 1
	}
	total := int(float64(rate) * secs)
	done := make(chan struct{})
	var once sync.Once
	group := "delaygen_c-" + topic // a group per topic: members of a group must read the same topics, and two runs may overlap
	hb := `{"clientID":"delaygen","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"` + group + `","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":0,"tagsSet":[],"topic":"` + topic + `"}],"unitMode":false}],"producerDataSet":[]}`
	run := strconv.FormatInt(time.Now().UnixNano(), 36)
	var ready sync.WaitGroup
	for q := 0; q < queues; q++ {
		conn := dial(addr)
		ready.Add(1)
		go func(q int, conn net.Conn) {
			r := bufio.NewReaderSize(conn, 1<<20)
			var b []byte
			call := func(h header, body []byte) (int, map[string]string) {
				h.Language, h.Ser, h.Version = "JAVA", "JSON", 401
				h.Opaque = 7
				conn.Write(frame(h, body, false))
				for {
					c, op, ext, err := readFrame(r, &b)
					if err != nil {
						return -1, nil
					}
					if op == 7 && c != 40 { // 40: NOTIFY_CONSUMER_IDS_CHANGED, whose opaque is the broker's own
						return c, ext
					}
				}
			}
			call(header{Code: 34}, []byte(hb))
			_, ext := call(header{Code: 30, Ext: map[string]string{"topic": topic, "queueId": strconv.Itoa(q)}}, nil)
			off := ext["offset"]
			ready.Done()
			for {
				c, ext := call(header{Code: 11, Ext: map[string]string{"consumerGroup": group, "topic": topic, "queueId": strconv.Itoa(q),
					"queueOffset": off, "maxMsgNums": "32", "sysFlag": "2", "commitOffset": "0", "suspendTimeoutMillis": "3000",
					"subscription": "*", "subVersion": "0", "expressionType": "TAG"}}, nil)
				if c == -1 {
					return
				}
				now := float64(time.Now().UnixMicro()) / 1000
				if n := ext["nextBeginOffset"]; n != "" {
					off = n
				}
				if c != 0 {
					if c != 19 && c != 20 && c != 21 {
						time.Sleep(20 * time.Millisecond)
					}
					continue
				}
				mu.Lock()
				for p := 0; p+4 <= len(b); p += int(binary.BigEndian.Uint32(b[p:])) {
					bl := int(binary.BigEndian.Uint32(b[p+84:]))
					var id int
					var due float64
					var rn string
					if k, _ := fmt.Sscanf(string(b[p+88:p+88+bl]), "%s %d %f", &rn, &id, &due); k != 3 || rn != run {
						continue
					}
					seen[id]++
					lates = append(lates, now-due)
					if now < due-tolerance {
						early++
					}
					if len(seen) == total {
						once.Do(func() { close(done) })
					}
				}
				mu.Unlock()
			}
		}(q, conn)
	}
	ready.Wait()
	conn := dial(addr)
	go func() {
		r := bufio.NewReaderSize(conn, 1<<20)
		var b []byte
		bad := 0
		for {
			c, _, ext, err := readFrame(r, &b)
			if err != nil {
				return
			}
			if c != 0 && bad < 3 {
				bad++
				fmt.Fprintln(os.Stderr, "send code", c, ext[""])
			}
		}
	}()
	cpu0 := cpu(pid)
	start := time.Now()
	w := bufio.NewWriter(conn)
	burstAt := float64(time.Now().UnixMilli()) + secs*1000 + float64(ms)
	for i := 0; i < total; i++ {
		at := start.Add(time.Duration(float64(i) / float64(rate) * float64(time.Second)))
		if d := time.Until(at); d > time.Millisecond {
			w.Flush()
			time.Sleep(d)
		}
		now := float64(time.Now().UnixMicro()) / 1000
		due := now + float64(ms)
		props := "WAIT\x01true\x02"
		switch how {
		case "level":
			props += "DELAY\x01" + strconv.Itoa(level)
		case "timer":
			due = float64(int64(due))
			props += "TIMER_DELIVER_MS\x01" + strconv.FormatInt(int64(due), 10)
		case "start":
			due = float64(int64(due))
			props += "__STARTDELIVERTIME\x01" + strconv.FormatInt(int64(due), 10)
		case "burst":
			due = float64(int64(burstAt))
			props += "TIMER_DELIVER_MS\x01" + strconv.FormatInt(int64(due), 10)
		}
		body := fmt.Sprintf("%s %d %.3f", run, i, due)
		w.Write(frame(header{Code: 310, Language: "JAVA", Opaque: int32(i + 1), Ser: "JSON", Version: 401, Ext: map[string]string{
			"a": "delaygen", "b": topic, "c": "TBW102", "d": "4", "e": strconv.Itoa(i % queues), "f": "0",
			"g": strconv.FormatInt(time.Now().UnixMilli(), 10), "h": "0", "i": props, "j": "0", "k": "false", "m": "false"}}, []byte(body), false))
	}
	w.Flush()
	timeout := time.Duration(float64(ms)+60000) * time.Millisecond
	select {
	case <-done:
	case <-time.After(timeout):
	}
	mu.Lock()
	sort.Float64s(lates)
	dup := len(lates) - len(seen)
	pct := func(p float64) float64 {
		if len(lates) == 0 {
			return -1
		}
		return lates[int(p*float64(len(lates)-1))]
	}
	fmt.Printf("{\"mode\":\"delay-%s\",\"sent\":%d,\"got\":%d,\"lost\":%d,\"dup\":%d,\"early\":%d,\"late_p50_ms\":%.1f,\"late_p99_ms\":%.1f,\"late_max_ms\":%.1f,\"broker_cpu_us_per_msg\":%.1f}\n",
		how, total, len(seen), total-len(seen), dup, early, pct(.5), pct(.99), pct(1), (cpu(pid)-cpu0)*1e6/float64(total))
}
