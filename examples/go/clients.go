package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const patience = 60 * time.Second

// startProducer starts a producer. Clients of one process need different names, which are the groups' here.
func startProducer(nameServer, group string, options ...producer.Option) (rocketmq.Producer, error) {
	options = append([]producer.Option{producer.WithNameServer([]string{nameServer}), producer.WithGroupName(group),
		producer.WithInstanceName(group)}, options...)
	p, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	return p, p.Start()
}

// send sends bodies one by one; a topic that does not exist is created by its first message.
func send(nameServer, topic string, bodies ...string) error {
	p, err := startProducer(nameServer, topic+"Producer")
	if err != nil {
		return err
	}
	defer p.Shutdown()
	for _, body := range bodies {
		if err := sendOne(p, primitive.NewMessage(topic, []byte(body))); err != nil {
			return err
		}
	}
	return nil
}

// sendOne sends a message; it is an error if the broker did not store it as configured.
func sendOne(p rocketmq.Producer, messages ...*primitive.Message) error {
	result, err := p.SendSync(context.Background(), messages...)
	if err == nil && result.Status != primitive.SendOK {
		err = errors.New("not sent: " + result.String())
	}
	return err
}

var everything = consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}

type handler = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

// startConsumer starts a consumer. A new group begins with the oldest message.
func startConsumer(nameServer, group, topic string, selector consumer.MessageSelector, handle handler,
	options ...consumer.Option) (rocketmq.PushConsumer, error) {
	options = append([]consumer.Option{consumer.WithNameServer([]string{nameServer}), consumer.WithGroupName(group),
		consumer.WithInstance(group), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}, options...)
	c, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	if err := c.Subscribe(topic, selector, handle); err != nil {
		return nil, err
	}
	return c, c.Start()
}

// received keeps messages by their bodies: a message may be delivered twice, and is kept once.
type received struct {
	mutex    sync.Mutex
	messages map[string]*primitive.MessageExt
	times    map[string]time.Time
}

func newReceived() *received {
	return &received{messages: map[string]*primitive.MessageExt{}, times: map[string]time.Time{}}
}

func (r *received) handle(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, message := range messages {
		body := string(message.Body)
		if r.messages[body] == nil {
			r.messages[body], r.times[body] = message, time.Now()
		}
	}
	return consumer.ConsumeSuccess, nil // ConsumeRetryLater: the messages are delivered again later
}

// wait waits for so many messages and returns their bodies, sorted.
func (r *received) wait(count int) ([]string, error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if bodies := r.bodies(); len(bodies) >= count {
			return bodies, nil
		}
	}
	return nil, fmt.Errorf("consumed %v instead of %d messages", r.bodies(), count)
}

func (r *received) bodies() (bodies []string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for body := range r.messages {
		bodies = append(bodies, body)
	}
	slices.Sort(bodies)
	return
}

// consume has a group consume messages of a topic until there are so many, and returns their bodies, sorted.
func consume(nameServer, group, topic string, selector consumer.MessageSelector, count int) ([]string, error) {
	r := newReceived()
	c, err := startConsumer(nameServer, group, topic, selector, r.handle)
	if err != nil {
		return nil, err
	}
	defer c.Shutdown()
	return r.wait(count)
}

// list formats bodies.
func list(bodies []string) string {
	return "[" + strings.Join(bodies, ", ") + "]"
}
