package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// tourRequestReply: a call over messages. The producer waits for the message with which a consumer replies.
func tourRequestReply(nameServer string) (string, error) {
	const topic, group = "TourRequest", "TourRequestGroup"
	p, err := startProducer(nameServer, "TourRequestProducer")
	if err != nil {
		return "", err
	}
	defer p.Shutdown()
	// A consumer can only start for a topic that exists, and the first message creates it.
	if err := sendOne(p, primitive.NewMessage(topic, []byte("0 + 0"))); err != nil {
		return "", err
	}
	replies, err := startProducer(nameServer, "TourReplyProducer")
	if err != nil {
		return "", err
	}
	defer replies.Shutdown()
	handle := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, question := range messages {
			if consumer.GetReplyToClient(question) == "" {
				continue // not a request
			}
			var a, b int
			fmt.Sscanf(string(question.Body), "%d + %d", &a, &b)
			reply, err := consumer.CreateReplyMessage(question, nil)
			if err == nil {
				reply.Body = []byte(fmt.Sprint(a + b)) // a body passed above gets lost in 2.1.2
				err = sendOne(replies, reply)
			}
			if err != nil {
				return consumer.ConsumeRetryLater, err
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	c, err := startConsumer(nameServer, group, topic, everything, handle)
	if err != nil {
		return "", err
	}
	defer c.Shutdown()

	// The broker passes a reply on to a client that it knows by its heartbeats, and the first comes a second after the start.
	time.Sleep(1500 * time.Millisecond)
	reply, err := p.Request(context.Background(), 40*time.Second, primitive.NewMessage(topic, []byte("2 + 3")))
	if err != nil {
		return "", err
	}
	return "asked 2 + 3, answered " + string(reply.Body), nil
}
