package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// byOrder sends a message to the queue of its sharding key.
type byOrder struct{}

func (byOrder) Select(message *primitive.Message, queues []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	order, _ := strconv.Atoi(message.GetShardingKey())
	return queues[order%len(queues)]
}

// tourOrdered: messages of one order go to one queue, and an orderly consumer gets each queue's messages one by one.
func tourOrdered(nameServer string) (string, error) {
	const topic, group = "TourOrdered", "TourOrderedGroup"
	run := strconv.FormatInt(time.Now().UnixNano(), 36) // the orders of this run
	p, err := startProducer(nameServer, "TourOrderedProducer", producer.WithQueueSelector(byOrder{}))
	if err != nil {
		return "", err
	}
	defer p.Shutdown()
	for _, step := range []string{"created", "paid", "shipped"} {
		for order := 0; order < 2; order++ {
			message := primitive.NewMessage(topic, []byte(fmt.Sprint(run, " ", order, " ", step)))
			if err := sendOne(p, message.WithShardingKey(strconv.Itoa(order))); err != nil {
				return "", err
			}
		}
	}

	consumed := make(chan []string, 100)
	handle := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			if words := strings.Fields(string(message.Body)); words[0] == run {
				consumed <- words
			}
		}
		// SuspendCurrentQueueAMoment: the same messages come again before the queue goes on
		return consumer.ConsumeSuccess, nil
	}
	c, err := startConsumer(nameServer, group, topic, everything, handle, consumer.WithConsumerOrder(true))
	if err != nil {
		return "", err
	}
	defer c.Shutdown()
	steps := map[string][]string{}
	for i := 0; i < 6; i++ {
		select {
		case words := <-consumed:
			steps[words[1]] = append(steps[words[1]], words[2])
		case <-time.After(patience):
			return "", fmt.Errorf("consumed only %v", steps)
		}
	}
	return "order 0 " + list(steps["0"]) + ", order 1 " + list(steps["1"]), nil
}
