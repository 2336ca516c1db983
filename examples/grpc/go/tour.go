// A tour of RocketMQ 5 with the official gRPC client for Go: normal, FIFO, delayed and transactional messages.
//
//	sh examples/grpc/create_topics.sh 127.0.0.1:9876
//	cd examples/grpc/go && go run . 127.0.0.1:8081
//
// Prints `SENT topic count`, `CONSUMED topic count` and for each delayed message `LATE ms`: how long after its due time it
// came.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const (
	normal, orders, steps, transactions, delayed = 20, 2, 5, 3, 3

	delay     = 5 * time.Second
	invisible = 30 * time.Second
	patience  = 60 * time.Second
)

var (
	topics    = []string{"TourNormal", "TourFifo", "TourTransaction", "TourDelayed"}
	sent      = map[string]int{}
	consumed  = map[string]int{}
	seen      = map[string]bool{}
	nextStep  = map[string]int{}
	disorders int
	ctx       = context.Background()
)

func main() {
	rocketmq.EnableSsl = false
	// The checker's answer is for transactions of which the server heard nothing, such as those of a producer that was killed.
	checker := &rocketmq.TransactionChecker{
		Check: func(*rocketmq.MessageView) rocketmq.TransactionResolution { return rocketmq.COMMIT },
	}
	producer := must(rocketmq.NewProducer(config(), rocketmq.WithTopics(topics...), rocketmq.WithTransactionChecker(checker)))
	check(producer.Start())
	sendAll(producer)
	for _, topic := range topics {
		receiveAll(topic)
	}
	check(producer.GracefulStop())
	print("SENT", sent)
	print("CONSUMED", consumed)
	if !maps.Equal(consumed, sent) || disorders > 0 {
		fmt.Println("DISORDER", disorders)
		os.Exit(1)
	}
}

func config() *rocketmq.Config {
	return &rocketmq.Config{Endpoint: os.Args[1], Credentials: &credentials.SessionCredentials{}}
}

func sendAll(producer rocketmq.Producer) {
	for i := 0; i < normal; i++ {
		message := newMessage("TourNormal", fmt.Sprint("normal ", i))
		message.SetTag("tour")
		message.SetKeys(fmt.Sprint("order-", i))
		send(producer, message)
	}
	for step := 0; step < steps; step++ { // messages of one group are received in order
		for order := 0; order < orders; order++ {
			message := newMessage("TourFifo", fmt.Sprint(order, " ", step))
			message.SetMessageGroup(fmt.Sprint("order-", order))
			send(producer, message)
		}
	}
	for i := 0; i <= transactions; i++ {
		transaction := producer.BeginTransaction()
		must(producer.SendWithTransaction(ctx, newMessage("TourTransaction", fmt.Sprint("transaction ", i)), transaction))
		if i == transactions {
			check(transaction.RollBack()) // nobody receives it
		} else {
			check(transaction.Commit())
			sent["TourTransaction"]++
		}
	}
	for i := 0; i < delayed; i++ {
		due := time.Now().Add(delay)
		message := newMessage("TourDelayed", fmt.Sprint(due.UnixMilli()))
		message.SetDelayTimestamp(due)
		send(producer, message)
	}
}

func newMessage(topic, body string) *rocketmq.Message {
	return &rocketmq.Message{Topic: topic, Body: []byte(body)}
}

func send(producer rocketmq.Producer, message *rocketmq.Message) {
	must(producer.Send(ctx, message))
	sent[message.Topic]++
}

func receiveAll(topic string) {
	group := config()
	group.ConsumerGroup = topic + "Group"
	consumer := must(rocketmq.NewSimpleConsumer(group, rocketmq.WithSimpleAwaitDuration(5*time.Second),
		rocketmq.WithSimpleSubscriptionExpressions(map[string]*rocketmq.FilterExpression{topic: rocketmq.SUB_ALL})))
	check(consumer.Start())
	for deadline := time.Now().Add(patience); consumed[topic] < sent[topic] && time.Now().Before(deadline); {
		for _, message := range receive(consumer) {
			count(message)
			check(consumer.Ack(ctx, message)) // else it comes again after the invisible time
		}
	}
	check(consumer.GracefulStop())
}

// receive returns no messages if there are none, which this client reports as an error.
func receive(consumer rocketmq.SimpleConsumer) []*rocketmq.MessageView {
	messages, err := consumer.Receive(ctx, 16, invisible)
	var status *rocketmq.ErrRpcStatus
	if errors.As(err, &status) && status.GetCode() == int32(v2.Code_MESSAGE_NOT_FOUND) {
		return nil
	}
	check(err)
	return messages
}

func count(message *rocketmq.MessageView) {
	if seen[message.GetMessageId()] {
		return // duplicates are possible
	}
	seen[message.GetMessageId()] = true
	body := string(message.GetBody())
	consumed[message.GetTopic()]++
	switch message.GetTopic() {
	case "TourDelayed":
		fmt.Println("LATE", time.Now().UnixMilli()-must(strconv.ParseInt(body, 10, 64)))
	case "TourFifo":
		var order string
		var step int
		must(fmt.Sscan(body, &order, &step))
		if step != nextStep[order] {
			disorders++
		}
		nextStep[order] = step + 1
	}
}

func print(what string, counts map[string]int) {
	for topic, n := range counts {
		fmt.Println(what, topic, n)
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
