// The demonstration's client in Go: sends and consumes messages of six kinds.
//
//	go run . 127.0.0.1:9876 127.0.0.1:10911
//
// The second address is the broker's: the Go client creates topics there. Prints `SENT kind count`, `CONSUMED kind count`
// and for each delayed message `LATE delay-seconds client-ms store-ms`: how long after its due time it was consumed, and
// stored for consumers.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	plain, tagged, keyed, delayed = 120, 60, 40, 20
	orders, steps                 = 5, 12
	batches, batch                = 4, 10
	queues                        = 4
	patience                      = 60 * time.Second
)

var (
	mu        sync.Mutex
	sent      = map[string]int{}
	consumed  = map[string]int{}
	seen      = map[string]bool{}
	lastStep  = map[string]int{}
	disorders int
	ctx       = context.Background()
)

func main() {
	rlog.SetLogLevel("error")
	nameServer, broker := os.Args[1], os.Args[2]
	createTopics(nameServer, broker)
	consumers := []rocketmq.PushConsumer{
		consume(nameServer, "TourConsumer", "*", "TourPlain", "TourKeyed", "TourDelayed", "TourBatch"),
		consume(nameServer, "TourRed", "red || white", "TourTagged"), // two groups, each with its own tags
		consume(nameServer, "TourGreenBlue", "green || blue || white", "TourTagged"),
		consume(nameServer, "TourOrderly", "*", "TourOrdered"),
	}

	p := must(rocketmq.NewProducer(producer.WithNameServer([]string{nameServer}), producer.WithGroupName("TourProducer"),
		producer.WithQueueSelector(chosenByOrder{producer.NewRoundRobinQueueSelector()})))
	check(p.Start())
	for i := 0; i < plain; i++ {
		send(p, "plain", message("TourPlain", fmt.Sprint("plain ", i)))
	}
	for i := 0; i < tagged; i++ {
		tag := []string{"red", "green", "blue"}[i%3]
		if i >= tagged-queues { // each queue ends with a message for both groups: a group's offset stays behind the last one it received
			tag = "white"
		}
		send(p, "tagged", message("TourTagged", fmt.Sprint("tagged ", i)).WithTag(tag))
	}
	for i := 0; i < keyed; i++ { // mqadmin queryMsgByKey -t TourKeyed -k order-7
		send(p, "keyed", message("TourKeyed", fmt.Sprint("keyed ", i)).WithKeys([]string{fmt.Sprint("order-", i)}))
	}
	for step := 0; step < steps; step++ { // messages of one order go to one queue, and so are consumed in order
		for order := 0; order < orders; order++ {
			m := message("TourOrdered", fmt.Sprint(order, " ", step))
			m.WithProperty("order", strconv.Itoa(order))
			send(p, "ordered", m)
		}
	}
	for b := 0; b < batches; b++ {
		var members []*primitive.Message
		for i := 0; i < batch; i++ {
			members = append(members, message("TourBatch", fmt.Sprint("batch ", b, " ", i)))
		}
		send(p, "batch", members...)
	}
	waitForAll() // until all consumers pull, as messages due earlier would wait for them
	for i := 0; i < delayed; i++ {
		m := message("TourDelayed", fmt.Sprint("delayed ", i))
		m.WithDelayTimeLevel(1 + i%2) // level 1 is one second, level 2 is five
		send(p, "delayed", m)
	}
	print("SENT", sent)

	waitForAll()
	print("CONSUMED", consumed)
	for _, c := range consumers {
		c.Shutdown()
	}
	p.Shutdown()
	if total(consumed) != total(sent) || disorders > 0 {
		fmt.Println("DISORDER", disorders)
		os.Exit(1)
	}
}

func waitForAll() {
	for deadline := time.Now().Add(patience); total(consumed) < total(sent) && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
}

func createTopics(nameServer, broker string) {
	a := must(admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{nameServer}))))
	defer a.Close()
	for _, topic := range []string{"TourPlain", "TourTagged", "TourKeyed", "TourDelayed", "TourOrdered", "TourBatch"} {
		check(a.CreateTopic(ctx, admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(broker),
			admin.WithReadQueueNums(queues), admin.WithWriteQueueNums(queues)))
	}
}

func message(topic, body string) *primitive.Message {
	return primitive.NewMessage(topic, []byte(body))
}

func send(p rocketmq.Producer, kind string, messages ...*primitive.Message) {
	result := must(p.SendSync(ctx, messages...))
	if result.Status != primitive.SendOK {
		panic(kind + " was not sent: " + result.String())
	}
	mu.Lock()
	sent[kind] += len(messages)
	mu.Unlock()
}

// chosenByOrder sends messages with the property "order" to the queue of that number, all others round robin.
type chosenByOrder struct{ others producer.QueueSelector }

func (s chosenByOrder) Select(m *primitive.Message, queues []*primitive.MessageQueue, broker string) *primitive.MessageQueue {
	if order, err := strconv.Atoi(m.GetProperty("order")); err == nil {
		return queues[order%len(queues)]
	}
	return s.others.Select(m, queues, broker)
}

func consume(nameServer, group, tags string, topics ...string) rocketmq.PushConsumer {
	c := must(rocketmq.NewPushConsumer(consumer.WithNameServer([]string{nameServer}), consumer.WithGroupName(group),
		consumer.WithInstance(group), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(group == "TourOrderly")))
	for _, topic := range topics {
		check(c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: tags}, count))
	}
	check(c.Start())
	return c
}

func count(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	mu.Lock()
	defer mu.Unlock()
	for _, m := range messages {
		place := fmt.Sprint(m.Topic, "@", m.Queue.QueueId, "@", m.QueueOffset)
		if seen[place] {
			continue // duplicates are possible
		}
		seen[place] = true
		kind := strings.ToLower(strings.TrimPrefix(m.Topic, "Tour"))
		consumed[kind]++
		switch kind {
		case "delayed":
			seconds := int64(1)
			if m.GetProperty(primitive.PropertyDelayTimeLevel) == "2" {
				seconds = 5
			}
			due := m.BornTimestamp + seconds*1000
			fmt.Println("LATE", seconds, time.Now().UnixMilli()-due, m.StoreTimestamp-due)
		case "ordered":
			body := strings.Fields(string(m.Body))
			step, _ := strconv.Atoi(body[1])
			if step != lastStep[body[0]] {
				disorders++
			}
			lastStep[body[0]] = step + 1
		}
	}
	return consumer.ConsumeSuccess, nil
}

func total(counts map[string]int) (sum int) {
	mu.Lock()
	defer mu.Unlock()
	for _, n := range counts {
		sum += n
	}
	return
}

func print(what string, counts map[string]int) {
	mu.Lock()
	defer mu.Unlock()
	for kind, n := range counts {
		fmt.Println(what, kind, n)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}
