// The Go client behind a line protocol: URL-encoded requests on stdin, JSON lines on stdout. ../java/Driver.java lists the
// operations; recall, pop, acknowledge, changeInvisible, view and query are missing here.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

type sent struct {
	Body        string  `json:"body"`
	Status      string  `json:"status"`
	MsgID       string  `json:"msg_id"`
	OffsetMsgID string  `json:"offset_msg_id"`
	QueueID     int     `json:"queue_id"`
	QueueOffset int64   `json:"queue_offset"`
	SentAtMs    int64   `json:"sent_at_ms"`
	AckedAt     float64 `json:"acked_at"`
}

type received struct {
	Topic            string            `json:"topic"`
	Body             *string           `json:"body"`
	BodySize         int               `json:"body_size"`
	BodyCrc          uint32            `json:"body_crc"`
	Tags             string            `json:"tags"`
	Keys             string            `json:"keys"`
	MsgID            string            `json:"msg_id"`
	OffsetMsgID      string            `json:"offset_msg_id"`
	QueueID          int               `json:"queue_id"`
	QueueOffset      int64             `json:"queue_offset"`
	ReconsumeTimes   int32             `json:"reconsume_times"`
	BornTimestampMs  int64             `json:"born_timestamp_ms"`
	StoreTimestampMs int64             `json:"store_timestamp_ms"`
	ArrivedAtMs      int64             `json:"arrived_at_ms"`
	ArrivedAt        float64           `json:"arrived_at"`
	Properties       map[string]string `json:"properties"`
}

type pulled struct {
	Status   string     `json:"status"`
	Min      int64      `json:"min"`
	Max      int64      `json:"max"`
	Next     int64      `json:"next"`
	Messages []received `json:"messages"`
}

var (
	began     = time.Now()
	namesrv   []string
	broker    string
	outLock   sync.Mutex
	lock      sync.Mutex
	producers = map[string]rocketmq.Producer{}
	pullers   = map[string]rocketmq.PullConsumer{}
	running   = map[string]func() error{}

	transactional = map[string]rocketmq.TransactionProducer{}
)

type request struct{ url.Values }

func (r request) text(name, otherwise string) string {
	if r.Has(name) {
		return r.Get(name)
	}
	return otherwise
}

func (r request) number(name string, otherwise int) int {
	if n, err := strconv.Atoi(r.Get(name)); err == nil {
		return n
	}
	return otherwise
}

func (r request) flag(name string) bool { return strings.EqualFold(r.Get(name), "true") }

func main() {
	namesrv, broker = []string{os.Args[1]}, os.Args[2]
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			break
		}
		values, err := url.ParseQuery(strings.TrimSpace(line))
		if err != nil {
			panic(err)
		}
		go answer(request{values})
	}
}

func show(item any) {
	text, err := json.Marshal(item)
	if err != nil {
		panic(err)
	}
	outLock.Lock()
	defer outLock.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func answer(r request) {
	id := r.number("id", 0)
	result, err := perform(r)
	if err != nil {
		show(map[string]any{"id": id, "error": err.Error()})
		return
	}
	show(map[string]any{"id": id, "result": result})
}

func perform(r request) (any, error) {
	switch op := r.Get("op"); op {
	case "producer":
		return nil, startProducer(r)
	case "send":
		return send(r)
	case "request":
		return ask(r)
	case "reply":
		return reply(r)
	case "push":
		return nil, startPush(r)
	case "pull":
		return pull(r)
	case "lite":
		_, err := startPuller(r, r.Get("name"), r.Get("group"))
		return nil, err
	case "poll":
		return poll(r)
	case "shutdown":
		lock.Lock()
		stop := running[r.Get("name")]
		delete(running, r.Get("name"))
		lock.Unlock()
		return nil, stop()
	default:
		return nil, fmt.Errorf("no such operation: %s", op)
	}
}

// chosenQueue selects the queue given by Queue of a message, without it the queues in turn.
type chosenQueue struct{ otherwise producer.QueueSelector }

func (c chosenQueue) Select(m *primitive.Message, queues []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	if m.Queue == nil {
		return c.otherwise.Select(m, queues, last)
	}
	for _, queue := range queues {
		if queue.QueueId == m.Queue.QueueId {
			return queue
		}
	}
	return nil
}

func startProducer(r request) error {
	name := r.Get("name")
	options := []producer.Option{
		producer.WithNameServer(namesrv),
		producer.WithInstanceName(name + strconv.Itoa(os.Getpid())),
		producer.WithGroupName(r.text("group", name+"-group")),
		producer.WithSendMsgTimeout(30 * time.Second),
		producer.WithCompressMsgBodyOverHowmuch(r.number("compressOver", 4096)),
		producer.WithQueueSelector(chosenQueue{producer.NewRoundRobinQueueSelector()}),
	}
	if r.Has("namespace") {
		options = append(options, producer.WithNamespace(r.Get("namespace")))
	}
	if r.Has("accessKey") {
		options = append(options, producer.WithCredentials(credentials(r)))
	}
	if r.Has("traceTopic") {
		options = append(options, producer.WithTrace(traces(r)))
	}
	if r.flag("transactional") {
		p, err := rocketmq.NewTransactionProducer(endings{name}, options...)
		if err != nil {
			return err
		}
		if err = p.Start(); err != nil {
			return err
		}
		lock.Lock()
		defer lock.Unlock()
		transactional[name], running[name] = p, p.Shutdown
		return nil
	}
	p, err := rocketmq.NewProducer(options...)
	if err != nil {
		return err
	}
	if err = p.Start(); err != nil {
		return err
	}
	lock.Lock()
	defer lock.Unlock()
	producers[name], running[name] = p, p.Shutdown
	return nil
}

func credentials(r request) primitive.Credentials {
	return primitive.Credentials{AccessKey: r.Get("accessKey"), SecretKey: r.Get("secretKey")}
}

func traces(r request) *primitive.TraceConfig {
	return &primitive.TraceConfig{
		TraceTopic: r.Get("traceTopic"), GroupName: r.Get("name"), Access: primitive.Local,
		Resolver: primitive.NewPassthroughResolver(namesrv),
	}
}

// endings ends each transaction as the properties of its message say.
type endings struct{ producer string }

func (e endings) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	if m.GetProperty("local") == "HANG" {
		show(map[string]any{"event": e.producer, "message": describe(&primitive.MessageExt{Message: *m})})
		select {}
	}
	return states[m.GetProperty("local")]
}

func (e endings) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	show(map[string]any{"event": e.producer, "message": describe(m)})
	return states[m.GetProperty("checked")]
}

var states = map[string]primitive.LocalTransactionState{
	"COMMIT": primitive.CommitMessageState, "ROLLBACK": primitive.RollbackMessageState, "UNKNOWN": primitive.UnknowState,
}

func forOne(values []string, index int) string {
	if len(values) == 0 {
		return ""
	}
	return values[min(index, len(values)-1)]
}

func message(r request, index int, label string) *primitive.Message {
	body := []byte(label)
	if size := r.number("size", -1); size >= 0 {
		body = []byte(strings.Repeat(label, size/len(label)+1)[:size])
	}
	m := primitive.NewMessage(r.Get("topic"), body)
	if tags := forOne(r.Values["tags"], index); tags != "" {
		m.WithTag(tags)
	}
	if keys := forOne(r.Values["keys"], index); keys != "" {
		m.WithKeys(strings.Fields(keys))
	}
	if r.Has("delayLevel") {
		m.WithDelayTimeLevel(r.number("delayLevel", 0))
	}
	if r.Has("queueId") {
		m.Queue = &primitive.MessageQueue{QueueId: r.number("queueId", 0)}
	}
	for name, values := range r.Values {
		if property, found := strings.CutPrefix(name, "property."); found {
			m.WithProperty(property, values[0])
		}
	}
	return m
}

func send(r request) ([]sent, error) {
	lock.Lock()
	p, transactional := producers[r.Get("producer")], transactional[r.Get("producer")]
	lock.Unlock()
	ctx := context.Background()
	labels := r.Values["body"]
	results := make([]sent, len(labels))
	switch kind := r.text("kind", "sync"); kind {
	case "sync":
		for i, label := range labels {
			at := time.Now().UnixMilli()
			result, err := p.SendSync(ctx, message(r, i, label))
			if err != nil {
				return nil, err
			}
			results[i] = describeSent(label, at, result)
		}
	case "transaction":
		for i, label := range labels {
			at := time.Now().UnixMilli()
			result, err := transactional.SendMessageInTransaction(ctx, message(r, i, label))
			if err != nil {
				return nil, err
			}
			results[i] = describeSent(label, at, result.SendResult)
		}
	case "async":
		var open sync.WaitGroup
		failed := make([]error, len(labels))
		for i, label := range labels {
			i, label, at := i, label, time.Now().UnixMilli()
			open.Add(1)
			err := p.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
				defer open.Done()
				if failed[i] = err; err == nil {
					results[i] = describeSent(label, at, result)
				}
			}, message(r, i, label))
			if err != nil {
				return nil, err
			}
		}
		open.Wait()
		for _, err := range failed {
			if err != nil {
				return nil, err
			}
		}
	case "oneway":
		for i, label := range labels {
			at := time.Now().UnixMilli()
			if err := p.SendOneWay(ctx, message(r, i, label)); err != nil {
				return nil, err
			}
			results[i] = describeSent(label, at, nil)
		}
	case "batch":
		messages := make([]*primitive.Message, len(labels))
		for i, label := range labels {
			messages[i] = message(r, i, label)
		}
		at := time.Now().UnixMilli()
		result, err := p.SendSync(ctx, messages...)
		if err != nil {
			return nil, err
		}
		return []sent{describeSent("", at, result)}, nil
	default:
		return nil, fmt.Errorf("no such kind: %s", kind)
	}
	return results, nil
}

func ask(r request) (any, error) {
	timeout := time.Duration(r.number("timeoutMs", 10_000)) * time.Millisecond
	got, err := plainProducer(r).Request(context.Background(), timeout, message(r, 0, r.Get("body")))
	if err != nil {
		return nil, err
	}
	return describe(&primitive.MessageExt{Message: *got}), nil
}

func reply(r request) (any, error) {
	asked := primitive.MessageExt{}
	for name, values := range r.Values {
		if property, found := strings.CutPrefix(name, "property."); found {
			asked.WithProperty(property, values[0])
		}
	}
	m, err := consumer.CreateReplyMessage(&asked, nil)
	if err != nil {
		return nil, err
	}
	m.Body = []byte(r.Get("body")) // CreateReplyMessage of v2.1.2 would parse it as properties
	at := time.Now().UnixMilli()
	result, err := plainProducer(r).SendSync(context.Background(), m)
	if err != nil {
		return nil, err
	}
	return describeSent(r.Get("body"), at, result), nil
}

func plainProducer(r request) rocketmq.Producer {
	lock.Lock()
	defer lock.Unlock()
	return producers[r.Get("producer")]
}

func selector(r request) consumer.MessageSelector {
	return consumer.MessageSelector{Type: consumer.ExpressionType(r.text("type", "TAG")), Expression: r.text("expression", "*")}
}

func startPush(r request) error {
	name := r.Get("name")
	options := []consumer.Option{
		consumer.WithNameServer(namesrv),
		consumer.WithInstance(name + strconv.Itoa(os.Getpid())),
		consumer.WithGroupName(r.Get("group")),
		consumer.WithConsumerOrder(r.flag("orderly")),
		consumer.WithMaxReconsumeTimes(int32(r.number("maxReconsume", -1))),
	}
	options = append(options, consumer.WithConsumeFromWhere(fromWhere[r.text("from", "first")]))
	if r.Has("timestampMs") {
		// The Go client reads it as UTC, the Java client as local time.
		at := time.UnixMilli(int64(r.number("timestampMs", 0))).UTC()
		options = append(options, consumer.WithConsumeTimestamp(at.Format("20060102150405")))
	}
	if r.Has("lockIntervalMs") {
		interval := time.Duration(r.number("lockIntervalMs", 0)) * time.Millisecond
		options = append(options, consumer.WithRebalanceLockInterval(interval))
	}
	if r.Has("strategy") {
		options = append(options, consumer.WithStrategy(strategy(r)))
	}
	if r.text("model", "CLUSTERING") == "BROADCASTING" {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if r.Has("namespace") {
		options = append(options, consumer.WithNamespace(r.Get("namespace")))
	}
	if r.Has("accessKey") {
		options = append(options, consumer.WithCredentials(credentials(r)))
	}
	if r.Has("traceTopic") {
		options = append(options, consumer.WithTrace(traces(r)))
	}
	c, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	var failingLock sync.Mutex
	failing := map[string]int{}
	for _, body := range r.Values["fail"] {
		failing[body] = r.number("failTimes", math.MaxInt)
	}
	delayLevel, orderly := r.number("delayLevel", 0), r.flag("orderly")
	err = c.Subscribe(r.Get("topic"), selector(r), func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		failed := false
		for _, m := range messages {
			show(map[string]any{"event": name, "message": describe(m)})
			failingLock.Lock()
			if failing[string(m.Body)] > 0 {
				failing[string(m.Body)]--
				failed = true
			}
			failingLock.Unlock()
		}
		switch {
		case !failed:
			return consumer.ConsumeSuccess, nil
		case orderly:
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		if concurrently, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			concurrently.DelayLevelWhenNextConsume = delayLevel
		}
		return consumer.ConsumeRetryLater, nil
	})
	if err != nil {
		return err
	}
	if err = c.Start(); err != nil {
		return err
	}
	lock.Lock()
	defer lock.Unlock()
	running[name] = c.Shutdown
	return nil
}

var fromWhere = map[string]consumer.ConsumeFromWhere{
	"first": consumer.ConsumeFromFirstOffset, "last": consumer.ConsumeFromLastOffset,
	"timestamp": consumer.ConsumeFromTimestamp,
}

func strategy(r request) consumer.AllocateStrategy {
	switch name := r.Get("strategy"); name {
	case "CIRCLE":
		return consumer.AllocateByAveragelyCircle
	case "HASH":
		return consumer.AllocateByConsistentHash(10)
	case "CONFIG":
		queues := []*primitive.MessageQueue{}
		for _, id := range r.Values["queueId"] {
			queueID, _ := strconv.Atoi(id)
			queues = append(queues, &primitive.MessageQueue{Topic: r.Get("topic"), BrokerName: broker, QueueId: queueID})
		}
		return consumer.AllocateByConfig(queues)
	case "ROOM":
		return consumer.AllocateByMachineRoom([]string{r.Get("room")})
	case "NEARBY":
		return consumer.AllocateByMachineNearby
	default:
		return consumer.AllocateByAveragely
	}
}

func startPuller(r request, name, group string) (rocketmq.PullConsumer, error) {
	lock.Lock()
	defer lock.Unlock()
	if c := pullers[name]; c != nil {
		return c, nil
	}
	c, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer(namesrv),
		consumer.WithInstance(name+strconv.Itoa(os.Getpid())),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	if err = c.Subscribe(r.Get("topic"), selector(r)); err != nil {
		return nil, err
	}
	if err = c.Start(); err != nil {
		return nil, err
	}
	pullers[name], running[name] = c, c.Shutdown
	return c, nil
}

var pullStatus = map[primitive.PullStatus]string{
	primitive.PullFound: "FOUND", primitive.PullNoNewMsg: "NO_NEW_MSG", primitive.PullNoMsgMatched: "NO_MATCHED_MSG",
	primitive.PullOffsetIllegal: "OFFSET_ILLEGAL", primitive.PullBrokerTimeout: "BROKER_TIMEOUT",
}

func pull(r request) (any, error) {
	// The selector of a Go pull consumer is fixed when it subscribes, so there is a consumer for each expression.
	group := r.text("group", "pull-group")
	c, err := startPuller(r, group+"|"+r.Get("topic")+"|"+r.Get("expression"), group)
	if err != nil {
		return nil, err
	}
	queue := &primitive.MessageQueue{Topic: r.Get("topic"), BrokerName: broker, QueueId: r.number("queueId", 0)}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	result, err := c.PullFrom(ctx, queue, int64(r.number("queueOffset", 0)), r.number("count", 32))
	if err != nil {
		return nil, err
	}
	answer := pulled{pullStatus[result.Status], result.MinOffset, result.MaxOffset, result.NextBeginOffset, []received{}}
	for _, m := range result.GetMessageExts() {
		answer.Messages = append(answer.Messages, describe(m))
	}
	return answer, nil
}

func poll(r request) (any, error) {
	lock.Lock()
	c := pullers[r.Get("name")]
	lock.Unlock()
	ctx := context.Background()
	messages := []received{}
	end := time.Now().Add(time.Duration(r.number("timeoutMs", 10_000)) * time.Millisecond)
	for len(messages) < r.number("count", 1) && time.Now().Before(end) {
		got, err := c.Poll(ctx, 200*time.Millisecond)
		if consumer.IsNoNewMsgError(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		for _, m := range got.GetMsgList() {
			messages = append(messages, describe(m))
		}
		c.ACK(ctx, got, consumer.ConsumeSuccess)
	}
	return messages, c.PersistOffset(ctx, r.Get("topic"))
}

var sendStatus = map[primitive.SendStatus]string{
	primitive.SendOK: "SEND_OK", primitive.SendFlushDiskTimeout: "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT", primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
}

func now() float64 { return float64(time.Since(began).Nanoseconds()) / 1e6 }

func describeSent(label string, at int64, result *primitive.SendResult) sent {
	if result == nil {
		return sent{label, "ONEWAY", "", "", -1, -1, at, now()}
	}
	return sent{label, sendStatus[result.Status], result.MsgID, result.OffsetMsgID, result.MessageQueue.QueueId,
		result.QueueOffset, at, now()}
}

func describe(m *primitive.MessageExt) received {
	arrivedAt, arrivedAtMs := now(), time.Now().UnixMilli()
	var body *string
	if len(m.Body) <= 256 {
		text := string(m.Body)
		body = &text
	}
	queueID := -1
	if m.Queue != nil {
		queueID = m.Queue.QueueId
	}
	return received{m.Topic, body, len(m.Body), crc32.ChecksumIEEE(m.Body), m.GetTags(), m.GetKeys(), m.MsgId, m.OffsetMsgId,
		queueID, m.QueueOffset, m.ReconsumeTimes, m.BornTimestamp, m.StoreTimestamp, arrivedAtMs, arrivedAt, m.GetProperties()}
}
