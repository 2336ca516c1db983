package main

import (
	"context"
	"fmt"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// tourAsync: asynchronous sends. The call returns at once, and a callback gets the answer.
func tourAsync(nameServer string) (string, error) {
	const topic, group = "TourAsync", "TourAsyncGroup"
	p, err := startProducer(nameServer, "TourAsyncProducer")
	if err != nil {
		return "", err
	}
	defer p.Shutdown()
	answers := make(chan error, 3)
	for i := 0; i < 3; i++ {
		message := primitive.NewMessage(topic, []byte(fmt.Sprint("message ", i)))
		err := p.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
			answers <- err // after an error the message may have been stored, or not: send it again
		}, message)
		if err != nil {
			return "", err
		}
	}
	for i := 0; i < 3; i++ {
		if err := <-answers; err != nil {
			return "", err
		}
	}
	bodies, err := consume(nameServer, group, topic, everything, 3)
	return "3 sent and answered, consumed " + list(bodies), err
}
