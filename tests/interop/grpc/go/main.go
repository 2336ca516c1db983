// The gRPC client for Go, case by case: ENDPOINT CASE TOPIC GROUP [rows=N] [wait_s=S].
//
// Prints a line of JSON for each message consumed and for each other fact that a test compares. The drivers in the other
// languages have the same cases, and the same functions in the same order.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const (
	requestTimeout = 10 * time.Second // servers beside a heavy load
	await          = 6 * time.Second  // Apache's proxy refuses less than 5
	invisible      = 30 * time.Second
	shorter        = 10 * time.Second
	soon           = 2 * time.Second
	later          = 20 * time.Second
)

var cases = map[string]func() error{
	"normal": normalCase, "send": sendThree, "push": pushCase, "fifo": fifoCase, "delay": delayCase, "recall": recallCase,
	"transaction": transactionCase, "orphan-send": orphanSendCase, "orphan-check": orphanCheckCase, "tag": tagCase,
	"sql": sqlCase, "dlq": dlqCase, "invisible": invisibleCase, "hold": holdCase, "drain": drainCase, "ask": askCase,
}

var (
	all                    = rocketmq.SUB_ALL
	options                = map[string]int{"wait_s": 60}
	endpoint, topic, group string
	end                    time.Time
	lock                   sync.Mutex
	rows                   int
	changed                = make(chan struct{}, 1)
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	rocketmq.EnableSsl = false
	endpoint, topic, group = arguments[0], arguments[2], arguments[3]
	for _, option := range arguments[4:] {
		name, value, _ := strings.Cut(option, "=")
		number, err := strconv.Atoi(value)
		if err != nil {
			return err
		}
		options[name] = number
	}
	end = time.Now().Add(time.Duration(options["wait_s"]) * time.Second)
	return cases[arguments[1]]()
}

// The cases

func normalCase() error {
	if err := sendThree(); err != nil {
		return err
	}
	consumer, err := startSimple()
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	err = receive(consumer, 3, func(message *rocketmq.MessageView) {
		showRow(text(message), message.GetDeliveryAttempt(), message.GetTag(), strings.Join(message.GetKeys(), " "),
			message.GetProperties()["index"])
	})
	if err != nil {
		return err
	}
	rest, err := receiveOnce(consumer, 16)
	showNote("rest", len(rest))
	return err
}

func pushCase() error {
	if _, err := startPush(all, 20, failOnce("m1")); err != nil {
		return err
	}
	if err := sendThree(); err != nil {
		return err
	}
	awaitRows(4)
	return nil
}

// fifoCase fails the last message: after a failure, this client consumes the next message before it consumes the failed one
// again, if it has received both at once.
func fifoCase() error {
	if _, err := startPush(all, 20, failOnce("o3")); err != nil {
		return err
	}
	producer, err := startProducer(rocketmq.UNKNOWN)
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	for _, body := range []string{"o0", "o1", "o2", "o3"} {
		message := newMessage(body)
		message.SetMessageGroup("one")
		if _, err := send(producer, message); err != nil {
			return err
		}
	}
	awaitRows(5)
	return nil
}

func delayCase() error {
	var sent time.Time
	_, err := startPush(all, 20, func(message *rocketmq.MessageView) bool {
		showRow(text(message), message.GetDeliveryAttempt(), time.Since(sent).Milliseconds())
		return true
	})
	if err != nil {
		return err
	}
	producer, err := startProducer(rocketmq.UNKNOWN)
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	sent = time.Now()
	if _, err := send(producer, newDelayed("in 2 s", soon)); err != nil {
		return err
	}
	awaitRows(1)
	return nil
}

func recallCase() error {
	if _, err := startPush(all, 20, failOnce()); err != nil {
		return err
	}
	producer, err := startProducer(rocketmq.UNKNOWN)
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	receipt, err := send(producer, newDelayed("x", later))
	if err != nil {
		return err
	}
	if _, err := send(producer, newDelayed("y", soon)); err != nil {
		return err
	}
	if _, err := producer.Recall(context.Background(), topic, receipt.RecallHandle); err != nil {
		return err
	}
	showNote("recalled", true)
	awaitRows(1)
	return nil
}

func transactionCase() error {
	if _, err := startPush(all, 20, failOnce()); err != nil {
		return err
	}
	producer, err := startProducer(rocketmq.COMMIT)
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	committed, err := sendHalf(producer, "committed")
	if err != nil {
		return err
	}
	if err := committed.Commit(); err != nil {
		return err
	}
	rolledBack, err := sendHalf(producer, "rolled back")
	if err != nil {
		return err
	}
	if err := rolledBack.RollBack(); err != nil {
		return err
	}
	if _, err := sendHalf(producer, "asked"); err != nil {
		return err
	}
	awaitRows(2)
	return nil
}

func orphanSendCase() error {
	producer, err := startProducer(rocketmq.UNKNOWN)
	if err != nil {
		return err
	}
	if _, err := sendHalf(producer, "orphan"); err != nil {
		return err
	}
	showReady()
	stay()
	return nil
}

func orphanCheckCase() error {
	if _, err := startPush(all, 20, failOnce()); err != nil {
		return err
	}
	producer, err := startProducer(rocketmq.COMMIT)
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	awaitRows(1)
	return nil
}

func tagCase() error {
	if _, err := startPush(rocketmq.NewFilterExpression("a"), 20, failOnce()); err != nil {
		return err
	}
	if err := sendThree(); err != nil {
		return err
	}
	awaitRows(2)
	return nil
}

func sqlCase() error {
	expression := rocketmq.NewFilterExpressionWithType("index > 1", rocketmq.SQL92)
	if _, err := startPush(expression, 20, failOnce()); err != nil {
		return err
	}
	if err := sendThree(); err != nil {
		return err
	}
	awaitRows(1)
	return nil
}

// dlqCase stops the consumer: else the proxy would keep the message for it, as for a consumer that still works on it.
func dlqCase() error {
	consumer, err := startPush(all, 20, func(message *rocketmq.MessageView) bool {
		showRow(text(message), message.GetDeliveryAttempt())
		return false
	})
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	producer, err := startProducer(rocketmq.UNKNOWN)
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	if _, err := send(producer, newMessage("d0")); err != nil {
		return err
	}
	awaitRows(2)
	return nil
}

func invisibleCase() error {
	producer, err := startProducer(rocketmq.UNKNOWN)
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	consumer, err := startSimple()
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	if _, err := send(producer, newMessage("x")); err != nil {
		return err
	}
	first, err := receiveOne(consumer)
	if err != nil {
		return err
	}
	showRow(text(first), first.GetDeliveryAttempt())
	if err := consumer.ChangeInvisibleDuration(first, shorter); err != nil {
		return err
	}
	changedAt := time.Now()
	second, err := receiveOne(consumer)
	if err != nil {
		return err
	}
	showRow(text(second), second.GetDeliveryAttempt())
	showNote("waited_ms", time.Since(changedAt).Milliseconds())
	return consumer.Ack(context.Background(), second)
}

func holdCase() error {
	wanted := options["rows"]
	_, err := startPush(all, wanted, func(message *rocketmq.MessageView) bool {
		showRow(text(message), message.GetDeliveryAttempt())
		stay()
		return true
	})
	if err != nil {
		return err
	}
	if !awaitRows(wanted) {
		return errors.New("too few messages came")
	}
	showReady()
	stay()
	return nil
}

func drainCase() error {
	consumer, err := startSimple()
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	return receive(consumer, options["rows"], func(message *rocketmq.MessageView) {
		showRow(text(message), message.GetDeliveryAttempt())
	})
}

func askCase() error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	if _, err := startPush(all, 20, failOnce()); err != nil {
		return err
	}
	showReady()
	<-ended
	return nil
}

// Producers

func configuration() *rocketmq.Config {
	return &rocketmq.Config{Endpoint: endpoint, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

// startProducer starts a producer; `checked` is its answer to all checks of transactions.
func startProducer(checked rocketmq.TransactionResolution) (rocketmq.Producer, error) {
	checker := &rocketmq.TransactionChecker{
		Check: func(*rocketmq.MessageView) rocketmq.TransactionResolution { return checked },
	}
	producer, err := rocketmq.NewProducer(configuration(), rocketmq.WithTopics(topic), rocketmq.WithTransactionChecker(checker))
	if err != nil {
		return nil, err
	}
	producer.SetRequestTimeout(requestTimeout)
	return producer, producer.Start()
}

func newMessage(body string) *rocketmq.Message {
	return &rocketmq.Message{Topic: topic, Body: []byte(body)}
}

func newDelayed(body string, delay time.Duration) *rocketmq.Message {
	message := newMessage(body)
	message.SetDelayTimestamp(time.Now().Add(delay))
	return message
}

func send(producer rocketmq.Producer, message *rocketmq.Message) (*rocketmq.SendReceipt, error) {
	receipts, err := producer.Send(context.Background(), message)
	if err != nil {
		return nil, err
	}
	return receipts[0], nil
}

func sendThree() error {
	producer, err := startProducer(rocketmq.UNKNOWN)
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	for index, tag := range []string{"a", "b", "a"} {
		value := strconv.Itoa(index)
		message := newMessage("m" + value)
		message.SetTag(tag)
		message.SetKeys("k" + value)
		message.AddProperty("index", value)
		if _, err := send(producer, message); err != nil {
			return err
		}
	}
	return nil
}

func sendHalf(producer rocketmq.Producer, body string) (rocketmq.Transaction, error) {
	transaction := producer.BeginTransaction()
	_, err := producer.SendWithTransaction(context.Background(), newMessage(body), transaction)
	return transaction, err
}

// Consumers

// startPush starts a push consumer; `consume` returns whether it has consumed a message.
func startPush(expression *rocketmq.FilterExpression, threads int, consume func(*rocketmq.MessageView) bool) (rocketmq.PushConsumer, error) {
	listener := &rocketmq.FuncMessageListener{Consume: func(message *rocketmq.MessageView) rocketmq.ConsumerResult {
		if consume(message) {
			return rocketmq.SUCCESS
		}
		return rocketmq.FAILURE
	}}
	consumer, err := rocketmq.NewPushConsumer(configuration(),
		rocketmq.WithPushSubscriptionExpressions(map[string]*rocketmq.FilterExpression{topic: expression}),
		rocketmq.WithPushConsumptionThreadCount(int32(threads)),
		rocketmq.WithPushMessageListener(listener))
	if err != nil {
		return nil, err
	}
	consumer.SetRequestTimeout(requestTimeout)
	return consumer, consumer.Start()
}

// failOnce returns a listener that shows each message, and fails once for each of the bodies.
func failOnce(bodies ...string) func(*rocketmq.MessageView) bool {
	var failed sync.Map
	return func(message *rocketmq.MessageView) bool {
		showRow(text(message), message.GetDeliveryAttempt())
		for _, body := range bodies {
			if body == text(message) {
				_, again := failed.LoadOrStore(body, true)
				return again
			}
		}
		return true
	}
}

func startSimple() (rocketmq.SimpleConsumer, error) {
	consumer, err := rocketmq.NewSimpleConsumer(configuration(),
		rocketmq.WithSimpleAwaitDuration(await),
		rocketmq.WithSimpleSubscriptionExpressions(map[string]*rocketmq.FilterExpression{topic: all}))
	if err != nil {
		return nil, err
	}
	consumer.SetRequestTimeout(requestTimeout)
	return consumer, consumer.Start()
}

// receive shows and acknowledges messages until there are as many as wanted.
func receive(consumer rocketmq.SimpleConsumer, wanted int, show func(*rocketmq.MessageView)) error {
	for rows < wanted && time.Now().Before(end) {
		messages, err := receiveOnce(consumer, 16)
		if err != nil {
			return err
		}
		for _, message := range messages {
			show(message)
			if err := consumer.Ack(context.Background(), message); err != nil {
				return err
			}
		}
	}
	return nil
}

func receiveOne(consumer rocketmq.SimpleConsumer) (*rocketmq.MessageView, error) {
	for time.Now().Before(end) {
		messages, err := receiveOnce(consumer, 1)
		if err != nil {
			return nil, err
		}
		if len(messages) > 0 {
			return messages[0], nil
		}
	}
	return nil, errors.New("no message came")
}

// receiveOnce receives messages, if there are any: this client reports as an error that there are none.
func receiveOnce(consumer rocketmq.SimpleConsumer, most int32) ([]*rocketmq.MessageView, error) {
	messages, err := consumer.Receive(context.Background(), most, invisible)
	var status *rocketmq.ErrRpcStatus
	if errors.As(err, &status) && status.GetCode() == int32(v2.Code_MESSAGE_NOT_FOUND) {
		return nil, nil
	}
	return messages, err
}

// awaitRows waits for as many rows as wanted; it returns whether they came in time.
func awaitRows(wanted int) bool {
	if given, ok := options["rows"]; ok {
		wanted = given
	}
	for shownRows() < wanted && time.Now().Before(end) {
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond):
		}
	}
	return shownRows() >= wanted
}

func stay() { select {} }

// What is printed

func text(message *rocketmq.MessageView) string { return string(message.GetBody()) }

func shownRows() int {
	lock.Lock()
	defer lock.Unlock()
	return rows
}

func showRow(values ...any) {
	show(map[string]any{"row": values})
	lock.Lock()
	defer lock.Unlock()
	rows++
	select {
	case changed <- struct{}{}:
	default:
	}
}

func showNote(name string, value any) { show(map[string]any{"note": name, "value": value}) }

func showReady() { show(map[string]any{"ready": true}) }

func show(item any) {
	line, err := json.Marshal(item)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(line, '\n'))
}
