package main

import (
	"context"
	"fmt"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// tourOneway: sends without an answer, for messages of which some may be lost.
func tourOneway(nameServer string) (string, error) {
	const topic, group = "TourOneway", "TourOnewayGroup"
	p, err := startProducer(nameServer, "TourOnewayProducer")
	if err != nil {
		return "", err
	}
	defer p.Shutdown()
	if err := sendOne(p, primitive.NewMessage(topic, []byte("the first creates the topic"))); err != nil {
		return "", err
	}
	for i := 0; i < 3; i++ {
		message := primitive.NewMessage(topic, []byte(fmt.Sprint("message ", i)))
		if err := p.SendOneWay(context.Background(), message); err != nil {
			return "", err
		}
	}
	bodies, err := consume(nameServer, group, topic, everything, 4)
	if err != nil {
		return "", err
	}
	return "3 sent without an answer, consumed " + list(bodies[:3]), nil
}
