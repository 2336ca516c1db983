// loadgen: a raw RocketMQ remoting load generator. One process, C connections, W requests in flight on each.
// It implements the wire protocol itself, so that the broker under test, not a client library, is the limit.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type header struct {
	Code     int               `json:"code"`
	Ext      map[string]string `json:"extFields,omitempty"`
	Flag     int               `json:"flag"`
	Language string            `json:"language"`
	Opaque   int32             `json:"opaque"`
	Remark   string            `json:"remark,omitempty"`
	Ser      string            `json:"serializeTypeCurrentRPC"`
	Version  int               `json:"version"`
}

func frame(h header, body []byte, bin bool) []byte {
	var hb []byte
	if bin {
		var ext []byte
		for k, v := range h.Ext {
			ext = binary.BigEndian.AppendUint16(ext, uint16(len(k)))
			ext = append(ext, k...)
			ext = binary.BigEndian.AppendUint32(ext, uint32(len(v)))
			ext = append(ext, v...)
		}
		hb = binary.BigEndian.AppendUint16(hb, uint16(h.Code))
		hb = append(hb, 0)
		hb = binary.BigEndian.AppendUint16(hb, uint16(h.Version))
		hb = binary.BigEndian.AppendUint32(hb, uint32(h.Opaque))
		hb = binary.BigEndian.AppendUint32(hb, uint32(h.Flag))
		hb = binary.BigEndian.AppendUint32(hb, 0)
		hb = binary.BigEndian.AppendUint32(hb, uint32(len(ext)))
		hb = append(hb, ext...)
	} else {
		hb, _ = json.Marshal(h)
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(4+len(hb)+len(body)))
	mark := uint32(len(hb))
	if bin {
		mark |= 1 << 24
	}
	out = binary.BigEndian.AppendUint32(out, mark)
	out = append(out, hb...)
	return append(out, body...)
}

// readFrame returns code, opaque and the ext fields (with the remark of a JSON header as ""), and sets *body.
func readFrame(r *bufio.Reader, body *[]byte) (code int, opaque int32, ext map[string]string, err error) {
	var l [8]byte
	if _, err = io.ReadFull(r, l[:]); err != nil {
		return
	}
	total := int(binary.BigEndian.Uint32(l[:4]))
	mark := binary.BigEndian.Uint32(l[4:])
	hl := int(mark & 0xFFFFFF)
	buf := make([]byte, total-4)
	if _, err = io.ReadFull(r, buf); err != nil {
		return
	}
	hb := buf[:hl]
	*body = buf[hl:]
	if mark>>24 == 0 {
		var h struct {
			Code   int               `json:"code"`
			Opaque int32             `json:"opaque"`
			Ext    map[string]string `json:"extFields"`
			Remark string            `json:"remark"`
		}
		if err = json.Unmarshal(hb, &h); err != nil {
			return
		}
		if h.Ext == nil {
			h.Ext = map[string]string{}
		}
		h.Ext[""] = h.Remark
		return h.Code, h.Opaque, h.Ext, nil
	}
	code = int(binary.BigEndian.Uint16(hb))
	opaque = int32(binary.BigEndian.Uint32(hb[5:]))
	rl := int(binary.BigEndian.Uint32(hb[13:]))
	p := 17 + rl
	xl := int(binary.BigEndian.Uint32(hb[p:]))
	p += 4
	ext = map[string]string{}
	for e := p + xl; p < e; {
		kl := int(binary.BigEndian.Uint16(hb[p:]))
		k := string(hb[p+2 : p+2+kl])
		p += 2 + kl
		vl := int(binary.BigEndian.Uint32(hb[p:]))
		ext[k] = string(hb[p+4 : p+4+vl])
		p += 4 + vl
	}
	return
}

// heartbeat returns the body of a HEART_BEAT of a consumer that reads one topic.
func heartbeat(client, group, topic string) []byte {
	return []byte(`{"clientID":"` + client + `","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"` + group + `","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":0,"tagsSet":[],"topic":"` + topic + `"}],"unitMode":false}],"producerDataSet":[]}`)
}

func dial(addr string) net.Conn {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return conn
}

func main() {
	addr := flag.String("addr", "127.0.0.1:10911", "broker address")
	mode := flag.String("mode", "send", "send | pull | pop | transaction | delay | check")
	topic := flag.String("topic", "Bench", "existing topic")
	queues := flag.Int("queues", 8, "queues of the topic")
	conns := flag.Int("conns", 8, "connections")
	window := flag.Int("window", 16, "requests in flight on each connection")
	size := flag.Int("size", 1024, "body bytes")
	secs := flag.Float64("secs", 10, "measured seconds, after the warm-up of 2 s")
	bin := flag.Bool("bin", false, "ROCKETMQ header serialisation in place of JSON")
	delay := flag.Int("delay", 0, "delay level property")
	brokerName := flag.String("broker", "broker-a", "mode pop: the broker's name")
	sql := flag.String("sql", "", "mode pull: an SQL92 expression, in place of all tags")
	vary := flag.String("vary", "", "mode pull: a text in -sql that each reader replaces by another one in each pass over a queue, so that all expressions differ")
	pid := flag.Int("pid", 0, "broker pid, for its CPU time and memory")
	topics := flag.Int("topics", 0, "mode send: send to this many topics at random, TOPIC-0 and so on, in place of TOPIC")
	held := flag.Int("held", 0, "pulls held beside the load, on the empty topic TOPIC-held")
	steps := flag.Bool("steps", false, "modes of a load: warm up until a line arrives on standard input, and print each second of it")
	how := flag.String("how", "level", "mode delay: level | timer | start | burst | now")
	ms := flag.Int("ms", 1000, "mode delay: the delay in milliseconds (level 1 is 1000)")
	rate := flag.Int("rate", 1000, "mode delay: messages a second")
	flag.Parse()
	if *mode == "check" {
		checkRun(*addr, *topic, *queues)
		return
	}
	if *mode == "delay" {
		delayRun(*addr, *topic, *how, *ms, max(*delay, 1), *queues, *rate, *secs, *pid)
		return
	}
	if *mode == "pop" {
		popRun(*addr, *topic, *brokerName, *queues, *conns, *window, *secs, *pid, *steps)
		return
	}
	hold(*addr, *topic+"-held", *queues, *held)
	body := []byte(strings.Repeat("x", *size))
	buffered := min(1<<20, 1<<27 / *conns)
	props := "KEYS\x01k1\x02UNIQ_KEY\x017F0000010B2C18B4AAC25D6A2C330000\x02WAIT\x01true\x02TAGS\x01TagA"
	sysFlag, isTransaction := "0", *mode == "transaction"
	if isTransaction {
		sysFlag, props = "4", "TRAN_MSG\x01true\x02PGROUP\x01loadgen\x02"+props
	}
	if *delay > 0 {
		props += "\x02DELAY\x01" + strconv.Itoa(*delay)
	}
	expression, expressionType := "*", "TAG"
	if *sql != "" {
		expression, expressionType = *sql, "SQL92"
	}
	var ops, msgs, bytes, failed, acked atomic.Int64
	var lastFail atomic.Value
	stop := make(chan struct{})
	var lat []float64
	var mu sync.Mutex
	var measuring atomic.Bool
	var wg sync.WaitGroup
	var ready sync.WaitGroup // all connections are made before the load, which would keep the broker from accepting thousands
	ready.Add(*conns)
	dialing := make(chan struct{}, 64)
	for c := 0; c < *conns; c++ {
		wg.Add(1)
		go func(c int) {
			defer wg.Done()
			dialing <- struct{}{}
			conn := dial(*addr)
			defer conn.Close()
			<-dialing
			ready.Done()
			ready.Wait()
			r := bufio.NewReaderSize(conn, buffered)
			w := bufio.NewWriterSize(conn, buffered/4)
			opaque := int32(0)
			sent := map[int32]time.Time{}
			qoff := map[int]int64{}
			opq := map[int32]int{}
			passes := map[int]int{}
			issue := func(q int) {
				opaque++
				var f []byte
				if *mode != "pull" {
					to := *topic
					if *topics > 0 {
						to += "-" + strconv.Itoa(rand.IntN(*topics))
					}
					f = frame(header{Code: 310, Language: "JAVA", Opaque: opaque, Ser: "JSON", Version: 401, Ext: map[string]string{
						"a": "loadgen", "b": to, "c": "TBW102", "d": "4", "e": strconv.Itoa(q), "f": sysFlag,
						"g": strconv.FormatInt(time.Now().UnixMilli(), 10), "h": "0", "i": props, "j": "0", "k": "false", "m": "false"}}, body, *bin)
				} else {
					asked := expression
					if *vary != "" {
						asked = strings.ReplaceAll(expression, *vary, fmt.Sprintf("%s-%d-%d-%d", *vary, c, q, passes[q]))
					}
					f = frame(header{Code: 11, Language: "JAVA", Opaque: opaque, Ser: "JSON", Version: 401, Ext: map[string]string{
						"consumerGroup": "loadgen_c", "topic": *topic, "queueId": strconv.Itoa(q), "queueOffset": strconv.FormatInt(qoff[q], 10),
						"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "15000", "subscription": asked,
						"subVersion": "0", "expressionType": expressionType}}, nil, *bin)
				}
				opq[opaque] = q
				sent[opaque] = time.Now()
				w.Write(f)
			}
			// commit commits a stored half message. Clients send this oneway; here it is answered, so that only stored messages
			// are counted.
			commits := map[int32]bool{}
			commit := func(q int, began time.Time, stored map[string]string) {
				opaque++
				id := stored["msgId"]
				physical, err := strconv.ParseInt(id[max(len(id)-16, 0):], 16, 64)
				if err != nil {
					lastFail.Store("msgId " + id)
					failed.Add(1)
				}
				commits[opaque], opq[opaque], sent[opaque] = true, q, began
				w.Write(frame(header{Code: 37, Language: "JAVA", Opaque: opaque, Ser: "JSON", Version: 401, Ext: map[string]string{
					"producerGroup": "loadgen", "tranStateTableOffset": stored["queueOffset"], "commitLogOffset": strconv.FormatInt(physical, 10),
					"commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": id, "transactionId": stored["transactionId"]}}, nil, *bin))
			}
			if *mode == "pull" { // a pull with an ad-hoc subscription still needs the group to be known
				w.Write(frame(header{Code: 34, Language: "JAVA", Opaque: 0, Ser: "JSON", Version: 401}, heartbeat("loadgen"+strconv.Itoa(c), "loadgen_c", *topic), false))
			}
			for i := 0; i < *window; i++ {
				issue((c**window + i) % *queues) // so that all queues are used
			}
			var b []byte
			for {
				select {
				case <-stop:
					return
				default:
				}
				if r.Buffered() < 8 { // whatever the last frame was: no request may wait in the buffer for its own answer
					w.Flush()
				}
				conn.SetReadDeadline(time.Now().Add(10 * time.Second))
				code, op, ext, err := readFrame(r, &b)
				if err != nil {
					lastFail.Store(err.Error())
					failed.Add(1)
					return
				}
				if op == 0 || code == 40 { // the answer to the heartbeat, or NOTIFY_CONSUMER_IDS_CHANGED, which is a request
					continue
				}
				q := opq[op]
				delete(opq, op)
				t := sent[op]
				delete(sent, op)
				if isTransaction && code == 0 && !commits[op] {
					commit(q, t, ext)
					continue
				}
				delete(commits, op)
				n := 1
				if *mode == "pull" {
					n = 0
					for p := 0; p+4 <= len(b); n++ {
						p += int(binary.BigEndian.Uint32(b[p:]))
					}
					next, _ := strconv.ParseInt(ext["nextBeginOffset"], 10, 64)
					if code == 0 && n > 0 {
						qoff[q] = next
					} else {
						qoff[q] = 0 // wrap round: read the queue again
						passes[q]++
						if code != 19 && code != 20 && code != 21 {
							failed.Add(1)
							lastFail.Store("code " + strconv.Itoa(code))
						}
					}
				} else if code != 0 {
					failed.Add(1)
					lastFail.Store("code " + strconv.Itoa(code) + " " + ext[""])
				}
				if *mode != "pull" && code == 0 {
					acked.Add(1)
				}
				if code == 0 || *mode == "pull" { // refused requests do not count as work done
					msgs.Add(int64(n))
					if measuring.Load() {
						ops.Add(1)
						bytes.Add(int64(len(b)))
						mu.Lock()
						lat = append(lat, float64(time.Since(t).Microseconds())/1000)
						mu.Unlock()
					}
				}
				issue(q)
			}
		}(c)
	}
	ready.Wait()
	warmUp(*pid, &msgs, *steps)
	before := msgs.Load()
	cpu0 := cpu(*pid)
	me0 := cpu(os.Getpid())
	t0 := time.Now()
	measuring.Store(true)
	time.Sleep(time.Duration(*secs * float64(time.Second)))
	measuring.Store(false)
	dt := time.Since(t0).Seconds()
	cpu1 := cpu(*pid)
	me1 := cpu(os.Getpid())
	m := float64(msgs.Load() - before)
	close(stop)
	mu.Lock()
	sort.Float64s(lat)
	pct := func(p float64) float64 {
		if len(lat) == 0 {
			return 0
		}
		return lat[int(p*float64(len(lat)-1))]
	}
	fmt.Printf("{\"mode\":%q,\"msgs_per_s\":%.0f,\"ops_per_s\":%.0f,\"mb_per_s\":%.1f,\"p50_ms\":%.2f,\"p99_ms\":%.2f,\"p999_ms\":%.2f,\"failed\":%d,\"acked\":%d,\"broker_cpu_us_per_msg\":%.2f,\"client_cpu_us_per_msg\":%.2f,\"rss_mb\":%.0f,\"anon_mb\":%.0f,\"last_fail\":%q}\n",
		*mode, m/dt, float64(ops.Load())/dt, float64(bytes.Load())/dt/1e6, pct(.5), pct(.99), pct(.999), failed.Load(), acked.Load(), (cpu1-cpu0)*1e6/m, (me1-me0)*1e6/m, status(*pid, "VmRSS:"), status(*pid, "RssAnon:"), fmt.Sprint(lastFail.Load()))
	mu.Unlock()
}

func status(pid int, key string) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for _, l := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(l, key) {
			v, _ := strconv.ParseFloat(strings.Fields(l)[1], 64)
			return v / 1024
		}
	}
	return 0
}
